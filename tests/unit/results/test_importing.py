from nixwulf.results import importing, record

SOURCE = {"name": "somebody", "url": "https://example.org/numbers"}
# no output: a cluster
CLUSTER = {"name": "somebodys", "platforms": ["dgx-spark"], "lab": False}
# no output: a case
CASE = {"benchmark": "hpl", "nodes": 2, "transport": "tcp", "parameters": {"n": 1000}}


def metric(value):
    return {"name": "gflops", "unit": "Gflop/s", "value": value, "conditions": {}}


def made(value=12.5, *, source=SOURCE, cluster=CLUSTER, case=CASE, **documents):
    return importing.external_record(
        "published", source=source, case=case, cluster=cluster, metrics=[metric(value)], **documents
    )


def test_a_number_without_samples_is_a_valid_record():
    record.validate(made(), "here")
    assert made()["id"].startswith("dgx-spark-hpl-2x-tcp-")


def test_a_number_that_is_corrected_keeps_its_records_id():
    assert made(12.5)["id"] == made(12.6)["id"]
    assert made(12.5)["digest"] != made(12.6)["digest"]


def test_a_price_and_a_note_do_not_change_what_was_measured():
    priced = {**CLUSTER, "price_usd": 8000}
    noted = {**SOURCE, "note": "read from a chart"}
    assert made(cluster=priced, source=noted)["id"] == made()["id"]


def test_another_source_engine_or_case_is_another_record():
    others = [
        made(source={**SOURCE, "url": "https://example.org/others"}),
        made(case={**CASE, "nodes": 4}),
        made(engine={"name": "llama.cpp", "version": "b1"}),
        made(cluster={**CLUSTER, "machine": "pair 2"}),
        made(fabric={"name": "usb4"}),
    ]
    assert len({one["id"] for one in [made(), *others]}) == 1 + len(others)


def test_runs_of_one_case_share_its_id_whoever_ran_it():
    other = made(source={**SOURCE, "url": "https://example.org/others"})
    assert other["case"]["id"] == made()["case"]["id"]
    assert made(engine={"name": "x", "version": "2"})["case"]["id"] != made()["case"]["id"]


def test_a_name_that_is_given_is_the_id():
    assert made(name="mine-1")["id"] == "mine-1"


def test_a_models_name_with_a_path_in_it_leaves_no_folder():
    assert "/" not in made(case={**CASE, "model": "../../etc/passwd"})["id"]

// SPDX-License-Identifier: GPL-2.0
// A zone of the kernel's powercap class with RAPL's names, for machines without RAPL, as QEMU's are.
#include <linux/err.h>
#include <linux/module.h>
#include <linux/powercap.h>

#define ENERGY_UJ 123456789
#define RANGE_UJ 262143328850

static struct powercap_control_type *rapl;
static struct powercap_zone package;

static int energy(struct powercap_zone *zone, u64 *energy_uj)
{
	*energy_uj = ENERGY_UJ;
	return 0;
}

static int range(struct powercap_zone *zone, u64 *range_uj)
{
	*range_uj = RANGE_UJ;
	return 0;
}

static int release(struct powercap_zone *zone)
{
	return 0;
}

static const struct powercap_zone_ops operations = {
	.get_energy_uj = energy,
	.get_max_energy_range_uj = range,
	.release = release,
};

// The class wants them of every zone, also where it has no limits.
static int get(struct powercap_zone *zone, int id, u64 *value)
{
	return -ENODATA;
}

static int set(struct powercap_zone *zone, int id, u64 value)
{
	return -ENODATA;
}

static const struct powercap_zone_constraint_ops limits = {
	.get_power_limit_uw = get,
	.set_power_limit_uw = set,
	.get_time_window_us = get,
	.set_time_window_us = set,
};

static int __init stand_in_init(void)
{
	struct powercap_zone *zone;

	rapl = powercap_register_control_type(NULL, "intel-rapl", NULL);
	if (IS_ERR(rapl))
		return PTR_ERR(rapl);
	zone = powercap_register_zone(&package, rapl, "package-0", NULL, &operations, 0, &limits);
	if (IS_ERR(zone)) {
		powercap_unregister_control_type(rapl);
		return PTR_ERR(zone);
	}
	return 0;
}

static void __exit stand_in_exit(void)
{
	powercap_unregister_zone(rapl, &package);
	powercap_unregister_control_type(rapl);
}

module_init(stand_in_init);
module_exit(stand_in_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for RAPL's energy counters");

# Included by llama.cpp's own project() in a build for the lab. What computes no tensor is compiled in few
# large pieces and with -O1, which takes less than half the time; ggml and libllama stay as they are:
# -O3, and ggml for this CPU.
function(nixwulf_cheaper)
  foreach(target llama-common server-context llama-server-impl mtmd cpp-httplib llama-bench-impl)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE -O1)
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    endif()
  endforeach()
  # Not in one piece with others: a file that specializes templates, and some that forbid a header.
  set(sources "${CMAKE_SOURCE_DIR}/common/json.cpp")
  set_source_files_properties(
    ${sources} TARGET_DIRECTORY llama-common PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  file(GLOB sources "${CMAKE_SOURCE_DIR}/tools/mtmd/mtmd-helper*.cpp")
  set_source_files_properties(
    ${sources} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.19)
  cmake_language(DEFER CALL nixwulf_cheaper)
endif()

# Compiles headers with the include folders of one target: those of layers that it must not know must not be found, the
# others must compile. Usage: cmake -DCOMPILER=... -DFOLDERS=a|b -DALLOWED=header|... -DFORBIDDEN=header|... -P check_includes.cmake
string(REPLACE "|" ";" folders "${FOLDERS}")
string(REPLACE "|" ";" allowed "${ALLOWED}")
string(REPLACE "|" ";" forbidden "${FORBIDDEN}")
list(TRANSFORM folders PREPEND -I)

# All in one file: a compiler spends nearly all its time on the headers behind ours.
set(source "")
foreach(header IN LISTS allowed)
    string(APPEND source "#include \"${header}\"\n")
endforeach()
foreach(header IN LISTS forbidden)
    string(APPEND source "#if __has_include(\"${header}\")\n#error \"${header} must not be included but is found\"\n#endif\n")
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${source}"
    COMMAND ${COMPILER} -std=c++20 -fsyntax-only -x c++ ${folders} -
    RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
    message(FATAL_ERROR "${errors}")
endif()
list(LENGTH forbidden n)
message(STATUS "${n} headers are out of reach")

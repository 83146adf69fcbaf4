# Compiles headers with the include folders of one target: those of layers that it must not know must not be found, the
# others must compile. Usage: cmake -DCOMPILER=... -DFOLDERS=a|b -DALLOWED=header|... -DFORBIDDEN=header|... -P check_includes.cmake
string(REPLACE "|" ";" folders "${FOLDERS}")
string(REPLACE "|" ";" allowed "${ALLOWED}")
string(REPLACE "|" ";" forbidden "${FORBIDDEN}")
list(TRANSFORM folders PREPEND -I)

function(compile header result message)
    execute_process(COMMAND ${CMAKE_COMMAND} -E echo "#include \"${header}\""
        COMMAND ${COMPILER} -std=c++20 -fsyntax-only -x c++ ${folders} -
        RESULT_VARIABLE status ERROR_VARIABLE errors)
    set(${result} ${status} PARENT_SCOPE)
    set(${message} "${errors}" PARENT_SCOPE)
endfunction()

foreach(header IN LISTS allowed)
    compile(${header} status errors)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${header} may be included but does not compile:\n${errors}")
    endif()
endforeach()
foreach(header IN LISTS forbidden)
    compile(${header} status errors)
    if(status EQUAL 0)
        message(FATAL_ERROR "${header} must not be included but compiles")
    elseif(NOT errors MATCHES "${header}")
        message(FATAL_ERROR "${header} must not be found, but something else is wrong:\n${errors}")
    endif()
endforeach()
list(LENGTH forbidden n)
message(STATUS "${n} headers are out of reach")

# The files of the server's page as C++ source, with their compressed forms. Run by the build: cmake -D FOLDER=... -D OUTPUT=... -P
# embed_web.cmake. In index.html, @version@ stands for a hash of all files and @modules@ for links that fetch the modules at once.
cmake_minimum_required(VERSION 3.21)

file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.html ${FOLDER}/*.css ${FOLDER}/*.js ${FOLDER}/*.svg)
list(SORT files)

set(hashes "")
foreach(name IN LISTS files)
    file(SHA256 ${FOLDER}/${name} hash)
    string(APPEND hashes "${name} ${hash}\n")
endforeach()
string(SHA256 version "${hashes}")
string(SUBSTRING ${version} 0 12 version)

set(modules ${files})
list(FILTER modules INCLUDE REGEX "\\.js$")
list(REMOVE_ITEM modules app.js early.js)
list(TRANSFORM modules REPLACE "(.+)" "<link rel=\"modulepreload\" href=\"web/${version}/\\1\">")
list(JOIN modules "" modules)

# "0x1f,0x8b,..." of hexadecimal digits.
function(bytes_of digits out)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${digits}")
    set(${out} "${bytes}" PARENT_SCOPE)
endfunction()

set(work ${OUTPUT}.work)
set(arrays "")
set(table "")
set(n 0)
foreach(name IN LISTS files)
    configure_file(${FOLDER}/${name} ${work} COPYONLY)
    if(name STREQUAL "index.html")
        file(READ ${work} text)
        string(REPLACE "@version@" ${version} text "${text}")
        string(REPLACE "<!-- @modules@ -->" "${modules}" text "${text}")
        file(WRITE ${work} "${text}")
    endif()
    file(ARCHIVE_CREATE OUTPUT ${work}.gz PATHS ${work} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(SHA256 ${work} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    file(READ ${work} plain HEX)
    file(READ ${work}.gz packed HEX)
    # Without the time of the build in bytes 4 to 7, so that equal files give equal programs.
    string(SUBSTRING ${packed} 0 8 head)
    string(SUBSTRING ${packed} 16 -1 tail)
    bytes_of("${plain}" plain)
    bytes_of("${head}00000000${tail}" packed)
    string(APPEND arrays "const unsigned char plain_${n}[] = {${plain}};\nconst unsigned char packed_${n}[] = {${packed}};\n")
    string(APPEND table "        {\"${name}\", \"${hash}\", text_of(plain_${n}), text_of(packed_${n})},\n")
    math(EXPR n "${n} + 1")
endforeach()
file(REMOVE ${work} ${work}.gz)

file(WRITE ${OUTPUT} "// Made by cmake/embed_web.cmake.
#include \"http/page_files.hpp\"

namespace flux2::server {
namespace {

${arrays}
template <size_t n>
std::string_view text_of(const unsigned char (&bytes)[n]) {
    return {reinterpret_cast<const char*>(bytes), n};
}

}  // namespace

std::string_view page_version() {
    return \"${version}\";
}

std::span<const PageFile> page_files() {
    static const PageFile files[] = {
${table}    };
    return files;
}

}  // namespace flux2::server
")

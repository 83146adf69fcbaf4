# Restricts which of our own headers a target can include: it gets a folder of links to the layers it may use. A forbidden
# include does not compile. docs/architecture.md has the table.

# flux2_sees(TARGET FOLDER...): folders relative to the project, included by their last name: flux2/base as "base/...".
function(flux2_sees target)
    set(view ${PROJECT_BINARY_DIR}/layers/${target})
    file(REMOVE_RECURSE ${view})
    file(MAKE_DIRECTORY ${view})
    foreach(folder IN LISTS ARGN)
        get_filename_component(name ${folder} NAME)
        file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${view}/${name} RESULT failed SYMBOLIC)
        if(failed)
            # Without links (Windows outside its developer mode) every layer can be included; builds on other systems find forbidden includes.
            get_filename_component(parent ${folder} DIRECTORY)
            target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/${parent})
        endif()
    endforeach()
    target_include_directories(${target} PRIVATE ${view})
endfunction()

# flux2_layer(NAME USES layer... SOURCES file... LIBRARIES target...): the layer flux2/NAME as objects of the library. It can
# include the layers it uses, itself and the public headers.
function(flux2_layer name)
    cmake_parse_arguments(layer "" "" "USES;SOURCES;LIBRARIES" ${ARGN})
    list(TRANSFORM layer_SOURCES PREPEND ${name}/)
    add_library(flux2_${name} OBJECT ${layer_SOURCES})
    set(folders ${name} ${layer_USES})
    list(TRANSFORM folders PREPEND flux2/)
    flux2_sees(flux2_${name} ${folders})
    target_include_directories(flux2_${name} PRIVATE ${PROJECT_SOURCE_DIR}/flux2/include)
    target_compile_features(flux2_${name} PUBLIC cxx_std_20)
    # A shared library exports what include/flux2/export.h marks. The objects are the same in a static one.
    set_target_properties(flux2_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    target_compile_definitions(flux2_${name} PRIVATE $<$<BOOL:${FLUX2_SHARED}>:FLUX2_BUILDING_SHARED>)
    target_link_libraries(flux2_${name} PRIVATE flux2_warnings ${layer_LIBRARIES})
    set_property(GLOBAL APPEND PROPERTY FLUX2_LAYERS flux2_${name})
endfunction()

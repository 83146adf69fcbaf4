// What reference pictures can be used for, as data.
#include <flux2/flux2.hpp>

namespace flux2 {

const std::vector<ReferenceRole>& reference_roles() {
    static const std::vector<ReferenceRole> kRoles = {
        {"style", "Apply the style from image {}."},
        {"pose", "Match the pose in image {}."},
        {"depth", "Match the depth map in image {}."},
        {"subject", "Show the subject of image {}."},
        {"face", "Keep the face of the person in image {}."},
        {"composition", "Follow the composition of image {}."},
        {"background", "Use the background of image {}."},
        {"colours", "Use the colours of image {}."},
        {"outlines", "Follow the outlines in image {}."},
    };
    return kRoles;
}

}  // namespace flux2

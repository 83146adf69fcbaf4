// Pictures in requests of A1111's API: what img2img starts from, and which part it repaints.
#pragma once

#include <flux2/flux2.hpp>
#include "http/request_fields.hpp"

namespace flux2::server {

// init_images, mask and what belongs to them.
const FieldTable& a1111_picture_fields();

// Fills the init image and the mask of a request whose size is read already. White in a mask is
// repainted. As in A1111 the picture is brought to the request's size first, except when only the
// masked region is drawn: then that region is drawn at this size, and the picture keeps its own.
// Throws FieldError.
void read_a1111_pictures(const RequestFields& fields, Request& request);

}  // namespace flux2::server

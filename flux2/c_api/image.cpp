// The functions of image.h.
#include <flux2/image.h>
#include <flux2/image.hpp>
#include "c_api/from_c.hpp"
#include "c_api/guarded.hpp"
#include "c_api/to_c.hpp"

#include <cstddef>
#include <vector>

using namespace flux2::c_api;

namespace {

constexpr const char* kPicture = "the picture";  // name in errors for pixels without a file

}  // namespace

extern "C" {

flux2_status flux2_image_load(const char* path, flux2_alpha alpha, flux2_image* image) {
    return guarded([&] {
        check_given(image, "image");
        *image = {};
        check_given(path, "path");
        *image = to_c(flux2::load_image(path_of(path), to_alpha(alpha)));
    });
}

flux2_status flux2_image_decode(const void* bytes, size_t n_bytes, flux2_alpha alpha,
                                flux2_image* image) {
    return guarded([&] {
        check_given(image, "image");
        *image = {};
        *image = to_c(flux2::decode_image(to_bytes(bytes, n_bytes), kPicture, to_alpha(alpha)));
    });
}

void flux2_image_free(flux2_image* image) {
    if (image != nullptr) {
        delete[] image->rgb;
        *image = {};
    }
}

flux2_status flux2_mask_load(const char* path, flux2_mask* mask) {
    return guarded([&] {
        check_given(mask, "mask");
        *mask = {};
        check_given(path, "path");
        *mask = to_c(flux2::load_mask(path_of(path)));
    });
}

flux2_status flux2_mask_decode(const void* bytes, size_t n_bytes, flux2_mask* mask) {
    return guarded([&] {
        check_given(mask, "mask");
        *mask = {};
        *mask = to_c(flux2::decode_mask(to_bytes(bytes, n_bytes)));
    });
}

void flux2_mask_free(flux2_mask* mask) {
    if (mask != nullptr) {
        delete[] mask->values;
        *mask = {};
    }
}

flux2_status flux2_image_texts_load(const char* path, flux2_image_text_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        check_given(path, "path");
        fill(*list, flux2::read_image_texts(path_of(path)));
    });
}

flux2_status flux2_image_texts_decode(const void* bytes, size_t n_bytes,
                                      flux2_image_text_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        fill(*list, flux2::decode_image_texts(to_bytes(bytes, n_bytes), kPicture));
    });
}

void flux2_image_text_list_free(flux2_image_text_list* list) {
    free_list<TextMemory>(list);
}

flux2_status flux2_image_save(const char* path, const flux2_image* image,
                              const flux2_image_text* texts, size_t n_texts) {
    return guarded([&] {
        check_given(path, "path");
        check_given(image, "image");
        flux2::save_image(path_of(path), to_image(*image, kPicture), to_texts(texts, n_texts));
    });
}

flux2_status flux2_image_save_new(const char* path, const flux2_image* image,
                                  const flux2_image_text* texts, size_t n_texts, uint32_t* saved) {
    return guarded([&] {
        check_given(saved, "saved");
        *saved = 0;
        check_given(path, "path");
        check_given(image, "image");
        const bool is_new = flux2::save_new_image(path_of(path), to_image(*image, kPicture),
                                                  to_texts(texts, n_texts));
        *saved = is_new ? 1 : 0;
    });
}

flux2_status flux2_image_encode(const flux2_image* image, flux2_image_format format,
                                const flux2_image_text* texts, size_t n_texts, flux2_bytes* bytes) {
    return guarded([&] {
        check_given(bytes, "bytes");
        *bytes = {};
        check_given(image, "image");
        const std::vector<std::byte> encoded = flux2::encode_image(
            to_image(*image, kPicture), to_format(format), to_texts(texts, n_texts));
        bytes->data = copy_of(reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size());
        bytes->count = encoded.size();
    });
}

void flux2_bytes_free(flux2_bytes* bytes) {
    if (bytes != nullptr) {
        delete[] bytes->data;
        *bytes = {};
    }
}

}  // extern "C"

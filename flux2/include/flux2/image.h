// Images from C: in memory, in files, and as the bytes of a file. flux2.h says who frees what.
#pragma once

#include <flux2/error.h>
#include <flux2/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// 8-bit RGB in sRGB without padding: rows from top to bottom, three bytes a pixel. An image may
// point to the caller's own pixels.
typedef struct flux2_image {
    int32_t width;
    int32_t height;
    uint8_t* rgb;
} flux2_image;

// How transparency is handled.
typedef enum flux2_alpha FLUX2_ENUM_TYPE {
    FLUX2_ALPHA_DROP = 0,  // alpha is ignored, as in the reference; logs a warning
    FLUX2_ALPHA_WHITE = 1  // blended over white
} flux2_alpha;

// Read a PNG, a JPEG or a WebP, from a file or from memory; colours are converted to sRGB by the
// file's ICC profile. On failure the image is empty. Free it with flux2_image_free. A WebP is
// FLUX2_UNSUPPORTED when the library was built without libwebp.
FLUX2_API flux2_status flux2_image_load(const char* path, flux2_alpha alpha, flux2_image* image);
FLUX2_API flux2_status flux2_image_decode(const void* bytes, size_t n_bytes, flux2_alpha alpha,
                                          flux2_image* image);

// Only for pixels that the library made.
FLUX2_API void flux2_image_free(flux2_image* image);

// One byte a pixel, rows from top to bottom: 255 is repainted, 0 is kept, values between them are
// blended. A mask may point to the caller's own values.
typedef struct flux2_mask {
    int32_t width;
    int32_t height;
    uint8_t* values;
} flux2_mask;

// Read a mask from a picture: its brightness; in a picture with transparent pixels its transparency
// instead. On failure the mask is empty. Free it with flux2_mask_free.
FLUX2_API flux2_status flux2_mask_load(const char* path, flux2_mask* mask);
FLUX2_API flux2_status flux2_mask_decode(const void* bytes, size_t n_bytes, flux2_mask* mask);

// Only for values that the library made.
FLUX2_API void flux2_mask_free(flux2_mask* mask);

// A piece of text inside a PNG, a JPEG or a WebP, such as the settings it was made with.
typedef struct flux2_image_text {
    const char* key;   // 1 to 79 Latin letters, digits, spaces
    const char* text;  // UTF-8
} flux2_image_text;

typedef struct flux2_image_text_list {
    size_t count;
    const flux2_image_text* items;
    void* memory;  // the library's own
} flux2_image_text_list;

// The texts of a PNG, a JPEG or a WebP, from a file or from memory. On failure the list is empty.
// Free it with flux2_image_text_list_free.
FLUX2_API flux2_status flux2_image_texts_load(const char* path, flux2_image_text_list* list);
FLUX2_API flux2_status flux2_image_texts_decode(const void* bytes, size_t n_bytes,
                                                flux2_image_text_list* list);
FLUX2_API void flux2_image_text_list_free(flux2_image_text_list* list);

// Writes a PNG, a JPEG, a WebP or a BMP, depending on the extension .png, .jpg, .jpeg, .webp or
// .bmp; texts are written to all but a BMP, and may be null when there are none. Files are written
// atomically; to a pipe or a device the bytes are written directly.
FLUX2_API flux2_status flux2_image_save(const char* path, const flux2_image* image,
                                        const flux2_image_text* texts, size_t n_texts);
// The same, but only if the file does not exist yet; else *saved is 0 and nothing is written.
FLUX2_API flux2_status flux2_image_save_new(const char* path, const flux2_image* image,
                                            const flux2_image_text* texts, size_t n_texts,
                                            uint32_t* saved);

typedef enum flux2_image_format FLUX2_ENUM_TYPE {
    FLUX2_IMAGE_PNG = 0,
    FLUX2_IMAGE_JPEG = 1,
    FLUX2_IMAGE_BMP = 2,
    FLUX2_IMAGE_WEBP = 3
} flux2_image_format;

typedef struct flux2_bytes {
    size_t count;
    uint8_t* data;
} flux2_bytes;

// The file that flux2_image_save would write. On failure there are no bytes. Free them with
// flux2_bytes_free.
FLUX2_API flux2_status flux2_image_encode(const flux2_image* image, flux2_image_format format,
                                          const flux2_image_text* texts, size_t n_texts,
                                          flux2_bytes* bytes);
FLUX2_API void flux2_bytes_free(flux2_bytes* bytes);

#ifdef __cplusplus
}
#endif

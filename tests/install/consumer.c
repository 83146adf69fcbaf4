#include <flux2/flux2.h>
#include <stdio.h>
#include <string.h>

// A picture to a PNG in memory and back.
static bool pictures_work(void) {
    uint8_t pixel[3] = {1, 2, 3};
    const flux2_image image = {1, 1, pixel};
    flux2_image read = {0, 0, NULL};
    flux2_bytes png;
    bool works = flux2_image_encode(&image, FLUX2_IMAGE_PNG, NULL, 0, &png) == FLUX2_OK &&
                 flux2_image_decode(png.data, png.count, FLUX2_ALPHA_DROP, &read) == FLUX2_OK &&
                 memcmp(read.rgb, pixel, 3) == 0;
    flux2_image_free(&read);
    flux2_bytes_free(&png);
    return works;
}

int main(void) {
    flux2_device_list devices;
    bool cpu = false;
    if (flux2_list_devices(&devices) != FLUX2_OK) {
        fprintf(stderr, "%s\n", flux2_last_error());
        return 1;
    }
    for (size_t i = 0; i < devices.count; ++i) {
        cpu = cpu || strcmp(devices.items[i]->name, "CPU") == 0;
    }
    flux2_device_list_free(&devices);
    printf("%s\n", flux2_version());
    return cpu && pictures_work() ? 0 : 1;
}

// The shortest C program that makes a picture.
#include <flux2/flux2.h>

#include <stdio.h>

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: flux2-minimal-c MODEL_FOLDER PROMPT PICTURE.png\n");
        return flux2_exit_code(FLUX2_BAD_ARGUMENT);
    }
    flux2_pipeline* pipeline = NULL;
    flux2_result result = flux2_result_default();
    flux2_request request = flux2_request_default();
    request.prompt = argv[2];
    flux2_status status = flux2_load(argv[1], NULL, &pipeline);
    if (status == FLUX2_OK) {
        status = flux2_generate(pipeline, &request, &result);
    }
    if (status == FLUX2_OK) {
        status = flux2_image_save(argv[3], &result.image, NULL, 0);
    }
    if (status != FLUX2_OK) {
        fprintf(stderr, "%s\n", flux2_last_error());
    }
    flux2_result_free(&result);
    flux2_free(pipeline);
    return flux2_exit_code(status);
}

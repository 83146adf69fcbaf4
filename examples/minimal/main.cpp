// The shortest C++ program that makes a picture.
#include <flux2/flux2.hpp>

#include <iostream>

int main(int argc, char** argv) {
    if (argc != 4) {
        std::cerr << "usage: flux2-minimal MODEL_FOLDER PROMPT PICTURE.png\n";
        return flux2::exit_code(flux2::ErrorKind::bad_argument);
    }
    try {
        flux2::Pipeline pipeline = flux2::Pipeline::load(flux2::find_model(argv[1]).files);
        flux2::Request request;
        request.prompt = argv[2];
        flux2::save_image(argv[3], pipeline.generate(request).image);
        return 0;
    } catch (const flux2::Error& error) {
        std::cerr << error.what() << "\n";
        return flux2::exit_code(error.kind());
    }
}

#include <flux2/error.hpp>
#include <flux2/version.hpp>
#include <iostream>

int main() {
    std::cout << flux2::version() << "\n";
    return flux2::exit_code(flux2::ErrorKind::bad_file) == 3 ? 0 : 1;
}

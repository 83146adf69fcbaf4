#include <flux2/flux2.hpp>
#include <iostream>

int main() {
    std::cout << flux2::version() << "\n";
    try {
        flux2::find_model("/no/such/folder");
    } catch (const flux2::Error& error) {
        return flux2::exit_code(error.kind()) == 3 ? 0 : 1;
    }
    return 1;
}

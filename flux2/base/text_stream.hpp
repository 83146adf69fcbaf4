// Text made of values, the same in every locale of the host program.
#pragma once

#include <locale>
#include <sstream>

namespace flux2 {

// Numbers have a decimal point and no marks between thousands.
class TextStream : public std::ostringstream {
  public:
    TextStream() { imbue(std::locale::classic()); }
};

}  // namespace flux2

// What is wrong with a user's data, collected so that everything is reported at once.
#pragma once

#include <string>
#include <vector>

namespace flux2 {

class Problems {
  public:
    // A sentence that begins with the file and, where there is one, the line. Counts once.
    void add(const std::string& line);
    const std::vector<std::string>& lines() const { return lines_; }
    bool empty() const { return lines_.empty(); }
    // Throws bad_file with all of them when there are any.
    void throw_if_any() const;

  private:
    std::vector<std::string> lines_;
};

}  // namespace flux2

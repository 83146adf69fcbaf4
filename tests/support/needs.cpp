#include "support/needs.hpp"

#include <ostream>
#include <set>
#include <string>
#include <vector>

namespace {

// Filters skip cases too: lines are about files of which a case ran, or none was filtered out.
class NeedsListener : public doctest::IReporter {
  public:
    explicit NeedsListener(const doctest::ContextOptions& options) : out_(*options.cout) {}

    void test_case_start(const doctest::TestCaseData& test) override {
        files_.insert(test.m_file.c_str());
        if (test.m_description != nullptr) {
            out_ << "ran here: " << test.m_name << std::endl;
        }
    }
    void test_case_skipped(const doctest::TestCaseData& test) override {
        if (!test.m_skip) {
            filtered_.insert(test.m_file.c_str());
        } else if (test.m_description != nullptr) {
            skipped_.push_back(&test);
        }
    }
    void test_run_end(const doctest::TestRunStats&) override {
        for (const doctest::TestCaseData* test : skipped_) {
            const std::string file = test->m_file.c_str();
            if (files_.contains(file) || !filtered_.contains(file)) {
                out_ << "not run here: " << test->m_name << ": " << test->m_description
                     << std::endl;
            }
        }
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}

  private:
    std::ostream& out_;
    std::set<std::string> files_;     // of cases that ran
    std::set<std::string> filtered_;  // of cases that a filter left out
    std::vector<const doctest::TestCaseData*> skipped_;
};

REGISTER_LISTENER("needs", 1, NeedsListener);

}  // namespace

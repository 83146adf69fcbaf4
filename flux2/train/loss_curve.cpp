#include "train/loss_curve.hpp"

#include "base/text_stream.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>

namespace flux2 {
namespace {

constexpr double kWidth = 800, kHeight = 400;
constexpr double kLeft = 60, kRight = 20, kTop = 30, kBottom = 40;
constexpr int kTicks = 5;

// Where values lie in the picture.
struct Frame {
    double last_step = 1, low = 0, high = 1;

    double x(double step) const { return kLeft + step / last_step * (kWidth - kLeft - kRight); }
    double y(double loss) const {
        return kTop + (high - loss) / (high - low) * (kHeight - kTop - kBottom);
    }
};

Frame frame_of(const std::vector<LossPoint>& losses, const std::vector<LossPoint>& validation) {
    std::vector<LossPoint> all = losses;
    all.insert(all.end(), validation.begin(), validation.end());
    Frame frame;
    if (all.empty()) {
        return frame;
    }
    frame.low = frame.high = all.front().loss;
    for (const LossPoint& point : all) {
        frame.last_step = std::max(frame.last_step, static_cast<double>(point.step));
        frame.low = std::min(frame.low, point.loss);
        frame.high = std::max(frame.high, point.loss);
    }
    const double margin = std::max(0.05 * (frame.high - frame.low), 1e-3);
    frame.low -= margin;
    frame.high += margin;
    return frame;
}

// At most about a thousand points of a line are distinguishable.
void add_line(std::ostream& svg, const Frame& frame, const std::vector<LossPoint>& points,
              const char* colour, bool has_dots) {
    const size_t step = std::max<size_t>(points.size() / 1000, 1);
    svg << "<polyline fill=\"none\" stroke=\"" << colour << "\" stroke-width=\"1.5\" points=\"";
    for (size_t i = 0; i < points.size(); i += step) {
        svg << frame.x(static_cast<double>(points[i].step)) << "," << frame.y(points[i].loss)
            << " ";
    }
    svg << "\"/>\n";
    for (size_t i = 0; has_dots && i < points.size(); i += step) {
        svg << "<circle r=\"3\" fill=\"" << colour << "\" cx=\""
            << frame.x(static_cast<double>(points[i].step)) << "\" cy=\"" << frame.y(points[i].loss)
            << "\"/>\n";
    }
}

void add_axes(std::ostream& svg, const Frame& frame) {
    for (int i = 0; i <= kTicks; ++i) {
        const double share = static_cast<double>(i) / kTicks;
        const double loss = frame.low + share * (frame.high - frame.low);
        svg << "<line stroke=\"#ddd\" x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\""
            << frame.y(loss) << "\" y2=\"" << frame.y(loss) << "\"/>\n"
            << "<text text-anchor=\"end\" x=\"" << kLeft - 6 << "\" y=\"" << frame.y(loss) + 4
            << "\">" << std::setprecision(3) << loss << std::setprecision(6) << "</text>\n";
        const double step = share * frame.last_step;
        svg << "<text text-anchor=\"middle\" x=\"" << frame.x(step) << "\" y=\""
            << kHeight - kBottom + 18 << "\">" << std::llround(step) << "</text>\n";
    }
}

}  // namespace

std::string loss_curve_svg(const std::vector<LossPoint>& losses,
                           const std::vector<LossPoint>& validation) {
    const Frame frame = frame_of(losses, validation);
    TextStream svg;
    svg << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << " " << kHeight
        << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
        << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    add_axes(svg, frame);
    add_line(svg, frame, losses, "#1f77b4", false);
    add_line(svg, frame, validation, "#d62728", true);
    svg << "<text x=\"" << kLeft << "\" y=\"18\" fill=\"#1f77b4\">loss, smoothed</text>\n";
    if (!validation.empty()) {
        svg << "<text x=\"" << kLeft + 120
            << "\" y=\"18\" fill=\"#d62728\">validation loss</text>\n";
    }
    svg << "<text text-anchor=\"middle\" x=\"" << kWidth / 2 << "\" y=\"" << kHeight - 6
        << "\">step</text>\n</svg>\n";
    return svg.str();
}

}  // namespace flux2

// The files in deploy/prometheus and deploy/grafana, and the page docs/metrics.md, name metrics
// that exist; Prometheus' own tool has nothing against the metrics, the alerts and their tests.
#include <filesystem>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/driver/metrics/measured_job.h"
#include "tests/support/process.h"

namespace hvd::driver {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kSource = HVD_SOURCE_DIR;

// The text of a job that shows all metrics there are.
std::string all_metrics() {
  JobStart start;
  start.options.heartbeat_timeout = std::chrono::milliseconds(3'000);
  start.options.elastic.limits = {.least = 1, .most = 2};
  MeasuredJob measured(start);
  measured.happens(event::Begin{});
  measured.find({{{"a", 2}}});
  measured.begins(1);
  measured.begins(2);
  measured.exits(2, 1);
  measured.pass_deadline();
  return measured.text();
}

std::set<std::string> names_in(const std::string& text) {
  static const std::regex name("hvd_[a-z_]+[a-z]");
  return {std::sregex_token_iterator(text.begin(), text.end(), name), {}};
}

// Of histograms these names exist besides that of the family.
std::set<std::string> names_that_exist() {
  std::set<std::string> names = test::metric_families(all_metrics());
  for (const auto& family : std::set<std::string>(names)) {
    if (!family.ends_with("_seconds")) continue;
    for (const auto* const part : {"_bucket", "_sum", "_count"}) names.insert(family + part);
  }
  return names;
}

void expect_known(const fs::path& file) {
  const auto known = names_that_exist();
  for (const auto& name : names_in(test::read_file(file))) {
    EXPECT_TRUE(known.contains(name)) << file << " names " << name << ", which is no metric";
  }
}

bool has_promtool() { return test::run({"sh", "-c", "command -v promtool"}).code == 0; }

constexpr const char* kNoPromtool = "no promtool here: Debian's package prometheus has it";

void expect_content(const std::vector<std::string>& command) {
  const auto end = test::run(command);
  EXPECT_EQ(end.code, 0) << end.out << end.err;
}

TEST(PrometheusFiles, TheDashboardShowsMetricsThatExist) {
  const fs::path file = kSource / "deploy/grafana/hvd.json";
  expect_known(file);
  const Json dashboard = Json::parse(test::read_file(file));
  std::set<int> ids;
  for (const Json& panel : dashboard.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << panel.at("title");
    EXPECT_FALSE(panel.at("title").get<std::string>().empty());
    for (const Json& target : panel.at("targets")) {
      EXPECT_FALSE(names_in(target.at("expr").get<std::string>()).empty()) << panel.at("title");
    }
  }
  EXPECT_GT(ids.size(), 10U);
}

TEST(PrometheusFiles, TheAlertsAskForMetricsThatExist) {
  for (const auto* const file : {"hvd.rules.yml", "hvd.rules.test.yml"}) {
    expect_known(kSource / "deploy/prometheus" / file);
  }
}

TEST(PrometheusFiles, ThePageDescribesEachMetric) {
  const fs::path page = kSource / "docs/metrics.md";
  expect_known(page);
  const auto described = names_in(test::read_file(page));
  for (const auto& family : test::metric_families(all_metrics())) {
    EXPECT_TRUE(described.contains(family)) << page << " does not describe " << family;
  }
}

// Each alert has a heading or a line there.
TEST(PrometheusFiles, ThePageDescribesEachAlert) {
  const std::string page = test::read_file(kSource / "docs/metrics.md");
  const std::string rules = test::read_file(kSource / "deploy/prometheus/hvd.rules.yml");
  const std::string tests = test::read_file(kSource / "deploy/prometheus/hvd.rules.test.yml");
  static const std::regex alert("- alert: ([A-Za-z]+)");
  std::size_t alerts = 0;
  for (std::sregex_iterator found(rules.begin(), rules.end(), alert), end; found != end; ++found) {
    const std::string name = (*found)[1];
    EXPECT_NE(page.find(name), std::string::npos) << name;
    EXPECT_NE(tests.find(name), std::string::npos) << name << " has no test";
    ++alerts;
  }
  EXPECT_GE(alerts, 5U);
}

TEST(PrometheusFiles, PromtoolAcceptsTheMetrics) {
  if (!has_promtool()) GTEST_SKIP() << kNoPromtool;
  const test::TemporaryDirectory directory;
  const auto file = directory.file("metrics", all_metrics());
  expect_content({"sh", "-c", cat("promtool check metrics < ", file.string())});
}

TEST(PrometheusFiles, PromtoolAcceptsTheAlertsAndTheirTests) {
  if (!has_promtool()) GTEST_SKIP() << kNoPromtool;
  const fs::path folder = kSource / "deploy/prometheus";
  expect_content({"promtool", "check", "rules", (folder / "hvd.rules.yml").string()});
  expect_content({"promtool", "test", "rules", (folder / "hvd.rules.test.yml").string()});
}

TEST(PrometheusFiles, PromtoolAcceptsTheConfiguration) {
  if (!has_promtool()) GTEST_SKIP() << kNoPromtool;
  const test::TemporaryDirectory directory;
  for (const auto* const file : {"prometheus.yml", "hvd.rules.yml"}) {
    fs::copy_file(kSource / "deploy/prometheus" / file, directory.path() / file);
  }
  directory.file("hvd-metrics-token", "00\n");
  expect_content({"promtool", "check", "config", (directory.path() / "prometheus.yml").string()});
}

}  // namespace
}  // namespace hvd::driver

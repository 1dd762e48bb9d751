/** `docs/metrics.md`, made from the declarations. */
import type { Family, LabelValues } from "./exposition.ts"
import { type FamilyGroup, familyGroups } from "./families.ts"
import type { MetricsView } from "./view.ts"

const preface = `# Metrics

This page is made from \`src/metrics/families/\`: run \`node scripts/generate.ts\` after a change there.

With \`[metrics]\` in its configuration a host serves \`GET /metrics\` on \`listen_address\` and \`port\`, as text that
Prometheus reads (its format 0.0.4). There is nothing else under that address, and nothing that is asked there changes
anything. Without the section there is no page.

\`\`\`yaml
scrape_configs:
  - job_name: nibrunner
    static_configs:
      - targets: ["127.0.0.1:9100"]
\`\`\`

- The page is made of the same states as \`reported.json\`, at the moment at which it is asked for; the report is at
  most a third of a second older. At most once a second a page is made anew: who asks sooner gets the last one.
- Every series that is declared has its HELP and TYPE, also while it has no sample. What is not known is absent, and
  a time that never was is 0. A state is one series for each value that it may have: 1 for the one that is.
- Series of an app are there from its first appearance in the document until it leaves it. What is counted of it is
  forgotten then.
- Counters and histograms begin at 0 with the daemon. Those that an app's meters are behind go on over restarts:
  \`nibrunner_app_time_seconds_total\`, \`nibrunner_app_cpu_seconds_total\`, \`nibrunner_app_network_bytes_total\` and
  \`nibrunner_app_disk_mib_seconds_total\`.
- On a full host (5,567 apps) the page has some 240,000 series, 20 MB. It is made in pieces, so that no app waits for
  it; Prometheus can drop what you do not need (\`metric_relabel_configs\`).
- At most 16 connections are served at a time; a request may take 5 s to arrive, its answer 30 s to be taken.

Each app has a fiber of its own, and there is no pass over all of them. So \`nibrunner_reconcile_seconds\` is about what
the host does for all apps together, and how long each app takes is in \`nibrunner_converge_seconds\`. Nothing of the
host waits for a next pass: an app that has to try again does so at its own time.

## Worth an alarm

\`\`\`promql
up{job="nibrunner"} == 0                                             # the daemon does not answer
nibrunner_host_reconciled == 0                                       # for minutes: something found at the start is stuck
increase(nibrunner_desired_state_unreadable_total[5m]) > 0           # a document was refused; the report says why
time() - nibrunner_report_written_timestamp_seconds > 120            # the report cannot be written
nibrunner_app_converging_seconds > 600                               # an app does not get to what is asked
increase(nibrunner_app_failures_total{reason="out_of_restarts"}[1h]) > 0
increase(nibrunner_start_refusals_total[1h]) > 0                     # the host is too small for its document
nibrunner_slots{of="used"} / ignoring(of) nibrunner_slots{of="total"} > 0.9
\`\`\`
`

const labelsOf = (labels: Readonly<Record<string, LabelValues>>): string =>
  Object.entries(labels)
    .map(([name, values]) =>
      typeof values === "string"
        ? `\`${name}\`: ${values}`
        : `\`${name}\`: ${values.map((value) => `\`${value}\``).join(", ")}`
    )
    .join("; ")

const entry = ({ name, type, help, labels, bounds }: Family<MetricsView>): string =>
  [
    `- \`${name}\` (${type}): ${help}`,
    ...(Object.keys(labels).length === 0 ? [] : [`  Labels: ${labelsOf(labels)}.`]),
    ...(bounds === undefined ? [] : [`  Buckets end at ${bounds.join(", ")}.`])
  ].join("\n")

const section = ({ title, families }: FamilyGroup): string =>
  `## ${title}\n\n${families.map(entry).join("\n")}\n`

/** The document, whole. */
export const metricsDocument = (): string => [preface, ...familyGroups.map(section)].join("\n")

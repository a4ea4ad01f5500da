//! The whole report as one page that opens offline: style and drawings inside, no script, readable on paper.

use std::fmt::Write as _;

use model::quantity::ByteCount;

use super::csv::{class_name, state_name};
use super::figures::Figures;
use super::tables::{self, Section};
use super::{markdown, set_up, warnings};
use crate::compare::record::Report;
use crate::plot::{Plot, escaped};
use crate::sample::Sample;

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#59626c;--line:#dde1e6;--band:#f5f7f9;--ours:#0b62a8;\
--bar:#cfe2f3;--rival:#e6e9ed;--warn:#fff6e0;--warn-line:#d9a400}\
@media screen and (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e8ecf0;--soft:#9aa4af;--line:#2b3138;\
--band:#1b2026;--ours:#6cb6ff;--bar:#1d3f5e;--rival:#2a3037;--warn:#2d2611;--warn-line:#b58a12}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);\
font:15px/1.5 system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\
main{max-width:1120px;margin:0 auto;padding:28px 24px 60px}h1{font-size:27px;line-height:1.2;margin:0 0 6px}\
h2{font-size:20px;margin:40px 0 12px;padding-top:14px;border-top:1px solid var(--line)}h3{font-size:16px;margin:24px 0 8px}\
p.lead{color:var(--soft);margin:0 0 14px;max-width:80ch}nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin:14px 0}\
a{color:var(--ours)}.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;\
font-size:13.5px;margin:6px 0 14px}th,td{padding:5px 11px;text-align:right;border-bottom:1px solid var(--line);\
white-space:nowrap}th{color:var(--soft);font-weight:600;text-align:right;vertical-align:bottom}\
th:first-child,td:first-child,.words th,.words td{text-align:left;white-space:normal}tr.ours td:first-child{color:var(--ours);font-weight:600}\
td.rate{background:linear-gradient(90deg,var(--rival) var(--part),transparent var(--part))}\
tr.ours td.rate{background:linear-gradient(90deg,var(--bar) var(--part),transparent var(--part))}\
.care{background:var(--warn);border-left:4px solid var(--warn-line);padding:10px 16px;margin:18px 0;border-radius:4px}\
.care ul{margin:4px 0;padding-left:20px}dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0}\
dt{color:var(--soft)}dd{margin:0}code,pre{font:12.5px/1.5 ui-monospace,'DejaVu Sans Mono',monospace;background:var(--band);\
border-radius:4px}code{padding:1px 4px;overflow-wrap:anywhere}pre{padding:12px 14px;overflow-x:auto;white-space:pre-wrap}\
figure{margin:14px 0;border:1px solid var(--line);border-radius:6px;overflow:hidden}\
figure svg,figure img{display:block;width:100%;height:auto}\
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));gap:0 16px}\
details>summary{cursor:pointer;color:var(--ours);margin:8px 0}td.bad{color:#c8500a}footer{color:var(--soft);margin-top:40px}\
@media print{body{font-size:11px}main{max-width:none;padding:0}table{font-size:9.5px}th,td{padding:3px 5px}\
figure,tr,.care{break-inside:avoid}h2,h3{break-after:avoid}nav{display:none}.plots{grid-template-columns:1fr 1fr}\
td.rate,.care{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

/// `others` are drawings found beside the report, by name.
pub fn page(report: &Report, figures: &Figures, plots: &[Plot], others: &[(String, String)]) -> String {
    let title = title(report);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{lead}",
        title = escaped(&title),
        lead = lead(report),
    );
    let has_plots = !plots.is_empty() || !others.is_empty();
    text += "<nav><a href=\"#results\">Results</a>";
    if has_plots {
        text += "<a href=\"#plots\">Plots</a>";
    }
    text += "<a href=\"#machine\">Machine</a><a href=\"#tools\">Tools and commands</a><a href=\"#how\">How</a>\
             <a href=\"#samples\">Raw samples</a></nav>\n";
    text += &care(report, figures);
    text += &results(report, figures);
    if has_plots {
        text += &drawings(plots, others);
    }
    text += &machine(report);
    text += &tools(report);
    text += &how(report);
    text += &samples(report);
    text + "<footer>Every figure can be computed again from <code>samples.csv</code>: \
            <code>thalweg bench report DIR</code>.</footer>\n</main>\n</body>\n</html>\n"
}

fn title(report: &Report) -> String {
    match report.environment.started.as_str() {
        "" => "Measurement".into(),
        started => format!("Measurement of {started} UTC"),
    }
}

fn lead(report: &Report) -> String {
    let machine = &report.environment;
    let tools: Vec<&str> = tables::in_order(report.tools.iter().map(|tool| tool.name.as_str()));
    let sets: Vec<&str> = report.sets.iter().take(8).map(|set| set.name.as_str()).collect();
    let more = if report.sets.len() > sets.len() {
        format!(" and {} more", report.sets.len() - sets.len())
    } else {
        String::new()
    };
    let mut parts = Vec::new();
    if machine.cores > 0 {
        let kind = if machine.is_virtual { "virtual machine" } else { "host" };
        parts.push(format!("{kind}, {} cores, Linux {}", machine.cores, machine.kernel));
    }
    if !machine.network.is_empty() {
        parts.push(machine.network.clone());
    }
    parts.push(format!("{} on {}{more}; {} runs", tools.join(", "), sets.join(", "), report.samples.len()));
    format!("<p class=\"lead\">{}.</p>\n", escaped(&parts.join(". ")))
}

fn care(report: &Report, figures: &Figures) -> String {
    const SHOWN_MAX: usize = 12;
    let doubts = warnings::of(report, figures);
    if doubts.is_empty() {
        return String::new();
    }
    let items = |doubts: &[String]| doubts.iter().map(|d| format!("<li>{}</li>", escaped(d))).collect::<String>();
    let (first, rest) = doubts.split_at(doubts.len().min(SHOWN_MAX));
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!("<details><summary>{} more</summary><ul>{}</ul></details>", rest.len(), items(rest))
    };
    format!("<div class=\"care\"><strong>Read with care</strong><ul>{}</ul>{rest}</div>\n", items(first))
}

fn results(report: &Report, figures: &Figures) -> String {
    let mut text = String::from("<h2 id=\"results\">Results</h2>\n");
    for section in tables::sections(report, figures) {
        let _ = writeln!(text, "<h3>{}</h3>", escaped(&section.title));
        text += &race_table(&section);
        if !section.ratios.is_empty() {
            text += &table("", tables::of_ratios(&section));
        }
    }
    for (title, of) in [
        ("Averages over the sets", tables::of_columns(figures)),
        ("Ceilings, each measured alone", tables::of_ceilings(figures)),
    ] {
        if !of.1.is_empty() {
            let _ = writeln!(text, "<h3>{title}</h3>\n{}", table("", of));
        }
    }
    let _ = writeln!(text, "<p class=\"lead\">{}</p>", markdown::LEGEND);
    text
}

/// With a bar behind each rate, as long as its part of the fastest of the same set.
fn race_table(section: &Section) -> String {
    let (header, rows) = tables::of_tools(section);
    let rate_column = header.iter().position(|name| *name == "Gbit/s");
    let mut text = head("", &header);
    for (summary, cells) in section.summaries.iter().zip(rows) {
        let of_set = section.summaries.iter().filter(|other| other.set == summary.set && other.class == summary.class);
        let most = of_set.map(|other| other.gbit_per_second_median).fold(f64::MIN_POSITIVE, f64::max);
        let percent = summary.gbit_per_second_median / most * 100.0;
        let _ = write!(text, "<tr{}>", if summary.is_ours { " class=\"ours\"" } else { "" });
        for (index, cell) in cells.iter().enumerate() {
            let bar = if Some(index) == rate_column {
                format!(" class=\"rate\" style=\"--part:{percent:.0}%\"")
            } else {
                String::new()
            };
            let _ = write!(text, "<td{bar}>{}</td>", escaped(cell));
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

fn drawings(plots: &[Plot], others: &[(String, String)]) -> String {
    let mut text = String::from("<h2 id=\"plots\">Plots</h2>\n<div class=\"plots\">\n");
    for plot in plots {
        let _ = writeln!(text, "<figure>{}</figure>", plot.svg());
    }
    for (name, drawing) in others {
        // As an image: what stands in a file of others cannot run or reach for anything.
        let (name, data) = (escaped(name), percent_encoded(drawing));
        let _ = writeln!(text, "<figure><img alt=\"{name}\" src=\"data:image/svg+xml,{data}\"/></figure>");
    }
    text + "</div>\n"
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3 / 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' | b':' | b'=' | b';' | b',' => {
                out.push(byte as char);
            }
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

fn machine(report: &Report) -> String {
    let machine = &report.environment;
    let kind = if machine.is_virtual { "virtual machine" } else { "host" };
    let rows = [
        ("measured", machine.started.clone()),
        ("processor", format!("{} x {} ({kind})", machine.cores, machine.cpu)),
        ("memory", ByteCount(machine.memory_bytes).to_string()),
        ("kernel", format!("Linux {}", machine.kernel)),
        ("storage", machine.file_system.clone()),
        ("huge pages for shared memory", machine.shmem_huge_pages.clone()),
        ("network", machine.network.clone()),
        ("congestion control", machine.congestion_control.clone()),
        ("seed of the data", report.seed.to_string()),
    ];
    let mut text = String::from("<h2 id=\"machine\">Machine</h2>\n<dl>\n");
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(text, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
    }
    text + "</dl>\n"
}

fn tools(report: &Report) -> String {
    let mut text = String::from(
        "<h2 id=\"tools\">Tools, settings, commands</h2>\n<p class=\"lead\"><code>$WORK</code> is the run's folder; \
         clients ran on one host, servers on the other.</p>\n",
    );
    for tool in &report.tools {
        let (name, version, protection) = (escaped(&tool.name), escaped(&tool.version), escaped(&tool.protection));
        let _ = writeln!(text, "<h3>{name}</h3>\n<p>{version}. {protection}</p>");
        let server = (!tool.server.is_empty()).then_some(("server", &tool.server));
        let commands = server.into_iter().chain(tool.clients.iter().map(|(set, command)| (set.as_str(), command)));
        let list: String = commands
            .map(|(name, command)| format!("<dt>{}</dt><dd><code>{}</code></dd>\n", escaped(name), escaped(command)))
            .collect();
        if !list.is_empty() {
            let _ = writeln!(text, "<dl>\n{list}</dl>");
        }
    }
    let steps = set_up::cells(&report.tools.iter().collect::<Vec<_>>());
    if !steps.1.is_empty() {
        let _ = write!(text, "<h3>Set-up</h3>\n<p class=\"lead\">{}</p>\n{}", set_up::LEGEND, table("words", steps));
    }
    text
}

fn how(report: &Report) -> String {
    let conventions = markdown::conventions(report);
    let items: String =
        conventions.lines().map(|line| format!("<li>{}</li>", escaped(line.trim_start_matches("- ")))).collect();
    let mut text = format!("<h2 id=\"how\">How</h2>\n<ul>{items}</ul>\n");
    if !report.regenerate.is_empty() {
        let _ = writeln!(text, "<p>Again:</p>\n<pre>{}</pre>", escaped(&report.regenerate));
    }
    text
}

fn samples(report: &Report) -> String {
    let header = [
        "condition",
        "set",
        "class",
        "tool",
        "round",
        "state",
        "seconds",
        "Gbit/s",
        "files/s",
        "CPU s",
        "foreign CPU s",
        "note",
    ];
    let row = |sample: &Sample| {
        vec![
            sample.condition.clone(),
            sample.set.clone(),
            class_name(sample.class),
            sample.tool.clone(),
            sample.round.to_string(),
            state_name(sample.state),
            format!("{:.3}", sample.seconds),
            format!("{:.3}", sample.gbit_per_second()),
            format!("{:.1}", sample.files_per_second()),
            format!("{:.2}", sample.cpu_seconds()),
            format!("{:.2}", sample.foreign_cpu_seconds + sample.steal_seconds),
            sample.note.clone(),
        ]
    };
    let rows = report.samples.iter().map(row).collect();
    format!(
        "<h2 id=\"samples\">Raw samples</h2>\n<details><summary>All {} runs, discarded, void and failed ones \
         included</summary>\n{}</details>\n",
        report.samples.len(),
        table("words", (header.to_vec(), rows))
    )
}

fn table(class: &str, (header, rows): (Vec<&str>, Vec<Vec<String>>)) -> String {
    let mut text = head(class, &header);
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text + "</tbody></table></div>\n"
}

fn head(class: &str, header: &[&str]) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let cells: String = header.iter().map(|name| format!("<th scope=\"col\">{}</th>", escaped(name))).collect();
    format!("<div class=\"scroll\"><table{class}>\n<thead><tr>{cells}</tr></thead>\n<tbody>\n")
}

//! The pages of a reproduction: one for each item, and one that leads to all.

use std::fmt::Write as _;
use std::path::Path;

use super::judge::Verdict;
use super::{Done, ITEMS, Item, Options};
use crate::error::{Error, Result};
use crate::plot::Plot;

/// `checks.md` and `checks.json` beside the bundle of the item.
pub fn write_item(item: &Item, done: &Done, dir: &Path) -> Result<()> {
    let mut text =
        format!("# {}: {}\n\nPublished: {}\n\nHere: {}\n\n", item.id, item.title, item.published, item.adapted);
    text += &checks(done);
    for note in &done.notes {
        let _ = writeln!(text, "- {note}");
    }
    for plot in &done.plots {
        let _ = write!(text, "\n## {}\n\n![{}](plots/{}.svg)\n\n{}\n", plot.title, plot.title, plot.name, plot.note);
    }
    let json = serde_json::to_string_pretty(done).expect("plain values serialise") + "\n";
    write_file(&dir.join("checks.md"), &text)?;
    write_file(&dir.join("checks.json"), &json)
}

/// `README.md` and `index.html` of the whole, with what is missing and why.
pub fn write(done: &[Done], options: &Options) -> Result<()> {
    let mut text = String::from("# Published figures, made again\n\n");
    if !options.regenerate.is_empty() {
        let _ = write!(text, "```\n{}\n```\n\n", options.regenerate);
    }
    text += "Rates are those of this machine, two hosts of a laboratory sharing its processors; only ratios and shapes \
             compare with the published ones. Each folder has raw samples, tables, plots and the plan.\n\n\
             | item | | verdicts | folder |\n|---|---|---|---|\n";
    for item in done {
        let report =
            if has_report(item, options) { format!(", [report]({}/report.html)", item.id) } else { String::new() };
        let _ = writeln!(
            text,
            "| {0} | {1} | {2} | [claims]({0}/checks.md){report} |",
            item.id,
            item.title,
            verdicts(item)
        );
    }
    for item in done {
        let _ = write!(text, "\n## {}: {}\n\n{}", item.id, item.title, checks(item));
    }
    text += "\n## Not here\n\n";
    for item in ITEMS.iter().filter(|item| item.run.is_none()) {
        let _ = writeln!(text, "- {} ({}): {}", item.id, item.title, item.needs.shown());
    }
    write_file(&options.out.join("README.md"), &text)?;
    write_file(&options.out.join("index.html"), &html(done, options))
}

fn has_report(done: &Done, options: &Options) -> bool {
    options.out.join(&done.id).join("report.html").exists()
}

fn verdicts(done: &Done) -> String {
    if let Some(failure) = &done.failure {
        return format!("did not end: {failure}");
    }
    let count = |verdict| done.checks.iter().filter(|check| check.verdict == verdict).count();
    format!("{} pass, {} fail, {} void", count(Verdict::Pass), count(Verdict::Fail), count(Verdict::Void))
}

fn checks(done: &Done) -> String {
    let mut text = String::new();
    if let Some(failure) = &done.failure {
        let _ = write!(text, "Did not end: {failure}\n\n");
    }
    if done.checks.is_empty() {
        return text;
    }
    text += "| claim | measured | condition or published | verdict |\n|---|---|---|---|\n";
    for check in &done.checks {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            check.claim,
            check.measured,
            check.expected,
            check.verdict.word().trim()
        );
    }
    text.push('\n');
    text
}

fn html(done: &[Done], options: &Options) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut text = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Published figures, made again</title>\
         <style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;\
         padding:0 1em}table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:left;\
         border-bottom:1px solid #8886;vertical-align:top}.pass{color:#1a7f37}.fail{color:#cf222e}.void{color:#9a6700}\
         figure{margin:1em 0}figure svg{display:block;width:100%;height:auto}\
         </style><h1>Published figures, made again</h1>",
    );
    for item in done {
        let link = format!(" · <a href=\"{}/report.html\">report</a>", item.id);
        let report = if has_report(item, options) { link } else { String::new() };
        let _ = write!(
            text,
            "<h2>{0}: {1}</h2><p>{2}{report} · <a href=\"{0}/checks.md\">claims</a></p>\
             <table><tr><th>claim<th>measured<th>condition or published<th>verdict</tr>",
            item.id,
            escape(&item.title),
            escape(&verdicts(item)),
        );
        for check in &item.checks {
            let word = check.verdict.word().trim();
            let cells = [&check.claim, &check.measured, &check.expected].map(|cell| escape(cell));
            let class = word.to_ascii_lowercase();
            let _ =
                write!(text, "<tr><td>{}<td>{}<td>{}<td class=\"{class}\">{word}</tr>", cells[0], cells[1], cells[2]);
        }
        text += "</table>";
        for plot in &item.plots {
            // Ids in a drawing begin with its name, and several items may have plots of one name.
            let plot = Plot { name: format!("{}-{}", item.id, plot.name), ..plot.clone() };
            let _ = write!(text, "<figure>{}</figure>", plot.svg());
        }
    }
    text + "</html>\n"
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(Error::io("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Scale, Unit};

    #[test]
    fn the_page_of_all_shows_every_plot_and_has_no_id_twice() {
        let axis = || Axis::new("seconds", Scale::Linear, Unit::Number);
        let plot = Plot {
            name: "rate".into(),
            title: "Rate".into(),
            note: String::new(),
            x: axis(),
            y: axis(),
            series: Vec::new(),
        };
        let done = |id: &str| Done {
            id: id.into(),
            title: "made again".into(),
            checks: Vec::new(),
            notes: Vec::new(),
            plots: vec![plot.clone()],
            failure: None,
            seconds: 1.0,
        };
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(dir.path(), "thalweg");
        write(&[done("one"), done("two")], &options).unwrap();
        let page = std::fs::read_to_string(dir.path().join("index.html")).unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        let count = |id: &str| page.matches(&format!("id=\"{id}-rate-area\"")).count();
        assert_eq!((count("one"), count("two")), (1, 1));
    }
}

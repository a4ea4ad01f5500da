//! Raw samples as a table with a header. Columns are found by their names: earlier bundles lack some of them.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use csv::{ReaderBuilder, StringRecord, WriterBuilder};

use crate::error::{Error, Result};
use crate::sample::{NetworkUse, Sample, State, Usage};
use crate::tool::Class;

const HEADER: [&str; 25] = [
    "condition",
    "set",
    "class",
    "tool",
    "ours",
    "round",
    "state",
    "seconds",
    "reported_seconds",
    "bytes",
    "files",
    "gbit_per_second",
    "files_per_second",
    "client_cpu_seconds",
    "server_cpu_seconds",
    "client_rss_bytes_max",
    "server_rss_bytes_max",
    "first_byte_seconds",
    "sent_bytes",
    "retransmitted_segments",
    "foreign_cpu_seconds",
    "steal_seconds",
    "disturbed",
    "bottleneck",
    "note",
];

/// A longer file is not one of ours.
const SAMPLES_MAX: usize = 1_000_000;

const CLASSES: [(&str, Class); 3] =
    [("network", Class::Network), ("local", Class::Local), ("reference", Class::Reference)];
const STATES: [(&str, State); 4] =
    [("discarded", State::Discarded), ("counted", State::Counted), ("void", State::Void), ("failed", State::Failed)];

/// `cores` are those of the machine that was measured.
pub fn write(samples: &[Sample], cores: usize) -> Result<String> {
    let failed = |e: csv::Error| Error::new(crate::error::Kind::Failed, "write", "samples.csv", e.to_string());
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(HEADER).map_err(failed)?;
    for sample in samples {
        writer.write_record(fields(sample, cores)).map_err(failed)?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(e.into_error().into()))?;
    Ok(String::from_utf8(bytes).expect("only text was written"))
}

fn fields(sample: &Sample, cores: usize) -> [String; 25] {
    let seconds = |value: f64| format!("{value:.6}");
    let network = sample.network.as_ref();
    [
        sample.condition.clone(),
        sample.set.clone(),
        name(&CLASSES, sample.class),
        sample.tool.clone(),
        sample.is_ours.to_string(),
        sample.round.to_string(),
        name(&STATES, sample.state),
        seconds(sample.seconds),
        sample.reported_seconds.map(seconds).unwrap_or_default(),
        sample.bytes.to_string(),
        sample.files.to_string(),
        format!("{:.4}", sample.gbit_per_second()),
        format!("{:.1}", sample.files_per_second()),
        format!("{:.2}", sample.client.cpu_seconds),
        sample.server.map(|server| format!("{:.2}", server.cpu_seconds)).unwrap_or_default(),
        sample.client.rss_bytes_max.to_string(),
        sample.server.map(|server| server.rss_bytes_max.to_string()).unwrap_or_default(),
        network.and_then(|network| network.first_byte_seconds).map(seconds).unwrap_or_default(),
        network.map(|network| network.sent_bytes.to_string()).unwrap_or_default(),
        network.map(|network| network.retransmitted_segments.to_string()).unwrap_or_default(),
        format!("{:.2}", sample.foreign_cpu_seconds),
        format!("{:.2}", sample.steal_seconds),
        sample.is_disturbed_on(cores).to_string(),
        sample.bottleneck.clone().unwrap_or_default(),
        sample.note.clone(),
    ]
}

pub fn name<T: PartialEq>(names: &[(&str, T)], value: T) -> String {
    names.iter().find(|(_, of)| *of == value).map_or_else(String::new, |(name, _)| (*name).to_owned())
}

pub fn class_name(class: Class) -> String {
    name(&CLASSES, class)
}

pub fn state_name(state: State) -> String {
    name(&STATES, state)
}

/// Reads what `write` wrote, of this or an earlier version; `path` is for messages.
pub fn read(text: &str, path: &Path) -> Result<Vec<Sample>> {
    let mut reader = ReaderBuilder::new().flexible(false).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|e| damaged(path, 1, e))?;
    let columns: HashMap<String, usize> = header.iter().map(str::to_owned).zip(0..).collect();
    for needed in ["set", "class", "tool", "round", "state", "seconds", "bytes", "files"] {
        if !columns.contains_key(needed) {
            return Err(damaged(path, 1, format!("the header has no column `{needed}`")));
        }
    }
    let mut samples = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| damaged(path, e.position().map_or(0, csv::Position::line), &e))?;
        let line = record.position().map_or(0, csv::Position::line);
        if samples.len() == SAMPLES_MAX {
            return Err(damaged(path, line, format!("more than {SAMPLES_MAX} samples")));
        }
        samples.push(Row { columns: &columns, record: &record, path, line }.sample()?);
    }
    Ok(samples)
}

struct Row<'a> {
    columns: &'a HashMap<String, usize>,
    record: &'a StringRecord,
    path: &'a Path,
    line: u64,
}

impl Row<'_> {
    fn sample(&self) -> Result<Sample> {
        let server = self.number("server_cpu_seconds")?.map(|cpu_seconds| (cpu_seconds, "server_rss_bytes_max"));
        let server = match server {
            Some((cpu_seconds, rss)) => Some(Usage { cpu_seconds, rss_bytes_max: self.parsed(rss)?.unwrap_or(0) }),
            None => None,
        };
        let network = match self.parsed("sent_bytes")? {
            Some(sent_bytes) => Some(NetworkUse {
                first_byte_seconds: self.number("first_byte_seconds")?,
                sent_bytes,
                retransmitted_segments: self.parsed("retransmitted_segments")?.unwrap_or(0),
            }),
            None => None,
        };
        let tool = self.text("tool").to_owned();
        let state = self.one_of(&STATES, "state")?;
        let seconds = self.number("seconds")?.ok_or_else(|| self.wrong("seconds", "a number"))?;
        if state == State::Counted && seconds <= 0.0 {
            return Err(self.wrong("seconds", "more than 0 in a run that counts"));
        }
        Ok(Sample {
            condition: self.text("condition").to_owned(),
            set: self.text("set").to_owned(),
            class: self.one_of(&CLASSES, "class")?,
            // Earlier bundles do not say whose a tool is.
            is_ours: self.parsed("ours")?.unwrap_or_else(|| tool.starts_with("thalweg")),
            tool,
            round: self.parsed("round")?.ok_or_else(|| self.wrong("round", "a whole number"))?,
            state,
            seconds,
            reported_seconds: self.number("reported_seconds")?,
            bytes: self.parsed("bytes")?.ok_or_else(|| self.wrong("bytes", "a whole number"))?,
            files: self.parsed("files")?.ok_or_else(|| self.wrong("files", "a whole number"))?,
            client: Usage {
                cpu_seconds: self.number("client_cpu_seconds")?.unwrap_or(0.0),
                rss_bytes_max: self.parsed("client_rss_bytes_max")?.unwrap_or(0),
            },
            server,
            network,
            foreign_cpu_seconds: self.number("foreign_cpu_seconds")?.unwrap_or(0.0),
            steal_seconds: self.number("steal_seconds")?.unwrap_or(0.0),
            bottleneck: Some(self.text("bottleneck")).filter(|stage| !stage.is_empty()).map(str::to_owned),
            note: self.text("note").to_owned(),
        })
    }

    /// Empty if the column is not there.
    fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|&index| self.record.get(index)).unwrap_or("")
    }

    fn parsed<T: FromStr>(&self, column: &str) -> Result<Option<T>> {
        match self.text(column) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.wrong(column, "a number of its kind")),
        }
    }

    fn number(&self, column: &str) -> Result<Option<f64>> {
        match self.parsed(column)? {
            Some(value) if !f64::is_finite(value) || value < 0.0 => Err(self.wrong(column, "a finite number from 0")),
            value => Ok(value),
        }
    }

    fn one_of<T: Copy>(&self, names: &[(&str, T)], column: &str) -> Result<T> {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        let found = names.iter().find(|(name, _)| *name == self.text(column));
        found.map(|(_, value)| *value).ok_or_else(|| self.wrong(column, &format!("one of {}", known.join(", "))))
    }

    fn wrong(&self, column: &str, wanted: &str) -> Error {
        damaged(self.path, self.line, format!("`{column}` is {:?}, not {wanted}", self.text(column)))
    }
}

fn damaged(path: &Path, line: u64, cause: impl Display) -> Error {
    Error::usage(format!("{} line {line}", path.display()), cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::tests::sample;

    fn samples() -> Vec<Sample> {
        let network = NetworkUse { first_byte_seconds: Some(0.25), sent_bytes: 77, retransmitted_segments: 3 };
        vec![
            Sample {
                condition: "rtt=74ms cc=cubic".into(),
                network: Some(network),
                bottleneck: Some("cpu-receiver".into()),
                note: "a, \"b\"\nc".into(),
                ..sample("thalweg", 0, 1.5)
            },
            Sample { server: None, reported_seconds: Some(1.25), state: State::Void, ..sample("rsync", 1, 2.0) },
        ]
    }

    #[test]
    fn samples_are_read_as_they_were_written() {
        let text = write(&samples(), 2).unwrap();
        assert_eq!(read(&text, Path::new("samples.csv")).unwrap(), samples());
    }

    #[test]
    fn earlier_bundles_lack_columns() {
        let text = "set,class,tool,round,state,seconds,bytes,files,note\nlarge,network,thalweg,1,counted,2.0,8,1,\n";
        let read = read(text, Path::new("samples.csv")).unwrap();
        assert_eq!((read[0].is_ours, read[0].condition.as_str(), read[0].network), (true, "", None));
        assert_eq!(read[0].bottleneck, None);
    }

    #[test]
    fn damage_is_reported_with_file_and_line() {
        let text = write(&samples(), 2).unwrap();
        let said = |text: &str| read(text, Path::new("dir/samples.csv")).unwrap_err().chain();
        let state = said(&text.replace("void", "vo"));
        assert_eq!(
            state,
            "read dir/samples.csv line 4: `state` is \"vo\", not one of discarded, counted, void, failed"
        );
        assert_eq!(said("set,tool\n"), "read dir/samples.csv line 1: the header has no column `class`");
        assert!(
            said(&text[..text.len() - 40]).starts_with("read dir/samples.csv line 4: "),
            "{}",
            said(&text[..text.len() - 40])
        );
        assert!(said(&text.replace("1.500000", "inf")).contains("line 2: `seconds` is \"inf\""));
        assert!(said("").contains("line 1"));
    }
}

//! Raw samples, one line each; fields are quoted where needed.

use crate::sample::{Sample, State};
use crate::tool::Class;

const HEADER: &str = "set,class,tool,round,state,seconds,reported_seconds,bytes,files,gbit_per_second,files_per_second,\
client_cpu_seconds,server_cpu_seconds,client_rss_bytes_max,server_rss_bytes_max,foreign_cpu_seconds,steal_seconds,\
disturbed,note\n";

pub fn samples(samples: &[Sample]) -> String {
    samples.iter().fold(HEADER.to_owned(), |text, sample| text + &line(sample))
}

fn line(sample: &Sample) -> String {
    let class = match sample.class {
        Class::Network => "network",
        Class::Local => "local",
        Class::Reference => "reference",
    };
    let state = match sample.state {
        State::Discarded => "discarded",
        State::Counted => "counted",
        State::Void => "void",
        State::Failed => "failed",
    };
    let seconds = |value: f64| format!("{value:.6}");
    let fields = [
        quote(&sample.set),
        class.into(),
        quote(&sample.tool),
        sample.round.to_string(),
        state.into(),
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
        format!("{:.2}", sample.foreign_cpu_seconds),
        format!("{:.2}", sample.steal_seconds),
        sample.is_disturbed().to_string(),
        quote(&sample.note),
    ];
    fields.join(",") + "\n"
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_hold_separators_are_quoted() {
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}

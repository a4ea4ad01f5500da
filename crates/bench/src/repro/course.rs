//! What a copy with buffers did over time, from the events that the command tells each second: bytes sent, and what waits in which
//! buffer.
//!
//! What was read is what was sent and what came to wait at the source; what was stored is what was sent and does not wait at the
//! destination.

use serde_json::Value;

use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};

/// A connection that begins is not what it will be.
const BEGIN_SECONDS: f64 = 1.5;
const MIB: f64 = 1048576.0;

#[derive(Clone, Copy, Default)]
struct Moment {
    seconds: f64,
    sent_bytes: f64,
    ahead_bytes: f64,
    behind_bytes: f64,
}

/// Until everything was sent.
pub struct Course(Vec<Moment>);

impl Course {
    pub fn of(stdout: &str, volume_bytes: u64) -> Course {
        let events = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let moments = events.filter(|event| event["event"] == "progress").map(|event| {
            let waiting = |buffer: &str| event["legs"][buffer]["waiting_bytes"].as_f64().unwrap_or(0.0);
            Moment {
                seconds: event["seconds"].as_f64().unwrap_or(0.0),
                sent_bytes: event["bytes"]["sent"].as_f64().unwrap_or(0.0),
                ahead_bytes: waiting("source_buffer"),
                behind_bytes: waiting("destination_buffer"),
            }
        });
        let is_under_way = |moment: &Moment| moment.sent_bytes < volume_bytes as f64;
        Course(moments.take_while(is_under_way).collect())
    }

    /// Bytes a second over the network, once it has begun: over as many whole periods as there are.
    pub fn rate(&self, period_seconds: Option<f64>) -> Option<f64> {
        let first = self.0.iter().find(|moment| moment.seconds >= BEGIN_SECONDS && moment.sent_bytes > 0.0)?;
        let last = self.0.last()?;
        let seconds = match (last.seconds - first.seconds, period_seconds) {
            (seconds, None) => seconds,
            // Events come a little late now and then.
            (seconds, Some(period)) => ((seconds + 0.05 * period) / period).floor() * period,
        };
        (seconds > 0.0).then(|| (self.sent_at(first.seconds + seconds) - first.sent_bytes) / seconds)
    }

    /// Between two events, in a straight line; after the last one likewise.
    fn sent_at(&self, seconds: f64) -> f64 {
        let behind = self.0.iter().position(|moment| moment.seconds >= seconds).unwrap_or(self.0.len() - 1).max(1);
        let (from, to) = (self.0[behind - 1], self.0[behind]);
        let slope = (to.sent_bytes - from.sent_bytes) / (to.seconds - from.seconds).max(1e-3);
        from.sent_bytes + slope * (seconds - from.seconds)
    }

    /// The rate of each leg, and the fill of each buffer, over time.
    pub fn plots(&self, title: &str) -> [Plot; 2] {
        let seconds = Axis::new("seconds", Scale::Linear, Unit::Number);
        let leg = |name: &str, of: &dyn Fn(&Moment) -> f64| {
            let rate = |pair: &[Moment]| {
                let seconds = (pair[1].seconds - pair[0].seconds).max(1e-3);
                Point::at(pair[1].seconds, ((of(&pair[1]) - of(&pair[0])) / seconds / 1e6).max(0.0))
            };
            Series { name: name.into(), kind: Kind::Measured, points: self.0.windows(2).map(rate).collect() }
        };
        let fill = |name: &str, of: &dyn Fn(&Moment) -> f64| Series {
            name: name.into(),
            kind: Kind::Measured,
            points: self.0.iter().map(|moment| Point::at(moment.seconds, of(moment) / MIB)).collect(),
        };
        let rates = Plot {
            name: "legs-rate".into(),
            title: format!("Rate of the three legs: {title}"),
            note: "From one event of the command to the next.".into(),
            x: seconds.clone(),
            y: Axis::new("MB/s", Scale::Linear, Unit::Number),
            series: vec![
                leg("read from the source", &|moment| moment.sent_bytes + moment.ahead_bytes),
                leg("sent over the network", &|moment| moment.sent_bytes),
                leg("stored at the destination", &|moment| moment.sent_bytes - moment.behind_bytes),
            ],
        };
        let fills = Plot {
            name: "legs-fill".into(),
            title: format!("Fill of the buffers: {title}"),
            note: "What waits in them, by the events of the command.".into(),
            x: seconds,
            y: Axis::new("MiB", Scale::Linear, Unit::Number),
            series: vec![
                fill("at the source", &|moment| moment.ahead_bytes),
                fill("at the destination", &|moment| moment.behind_bytes),
            ],
        };
        [rates, fills]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten bytes a second, and none in the last of every four seconds.
    fn course() -> Course {
        let mut text = String::from("{\"event\":\"start\"}\nno event\n");
        let mut sent = 0;
        for second in 1..=30 {
            sent += if second % 4 == 0 { 0 } else { 10 };
            let legs = format!("{{\"source_buffer\":null,\"destination_buffer\":{{\"waiting_bytes\":{second}}}}}");
            text += &format!(
                "{{\"event\":\"progress\",\"seconds\":{second},\"bytes\":{{\"sent\":{sent}}},\"legs\":{legs}}}\n"
            );
        }
        Course::of(&text, 150)
    }

    #[test]
    fn the_rate_is_that_of_whole_periods_until_all_was_sent() {
        let course = course();
        assert_eq!(course.0.len(), 18, "what comes after the volume was sent is left out");
        assert!((course.rate(Some(4.0)).unwrap() - 7.5).abs() < 1e-9);
        assert!((course.rate(None).unwrap() - 7.5).abs() < 0.1);
        assert_eq!(course.rate(Some(60.0)), None, "not one whole period");
        assert_eq!(Course::of("", 1).rate(None), None);
    }

    #[test]
    fn plots_show_three_rates_and_two_fills() {
        let [rates, fills] = course().plots("a test");
        let last = |plot: &Plot, at: usize| plot.series[at].points.last().map(|point| (point.x, point.y));
        assert_eq!((rates.series.len(), fills.series.len()), (3, 2));
        assert_eq!(last(&rates, 1), Some((18.0, 10.0 / 1e6)));
        assert_eq!(last(&rates, 2), Some((18.0, 9.0 / 1e6)));
        assert_eq!(last(&fills, 1), Some((18.0, 18.0 / MIB)));
    }
}

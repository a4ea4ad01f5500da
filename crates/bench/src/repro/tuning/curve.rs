//! What a copy carried over time, by the events that the command tells each second: its rate, how soon that is what it
//! ought to be, and how evenly several copies share.
//!
//! Pure. Not here: running copies (`stand`), and what is claimed of them.

use std::ops::Range;

use serde::Serialize;
use serde_json::Value;

use crate::plot::Point;

/// For so long a rate has to hold before it counts as reached: events come each second.
pub const HELD_SECONDS: f64 = 2.0;
const STEP_SECONDS: f64 = 0.1;

/// Seconds of a clock, and the bytes that had been sent by then.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Curve(Vec<(f64, f64)>);

impl Curve {
    /// Of a copy that began at a moment of the clock.
    pub fn of(stdout: &str, begun_seconds: f64) -> Curve {
        let events = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let progress = events.filter(|event| event["event"] == "progress");
        let point = |event: Value| Some((begun_seconds + event["seconds"].as_f64()?, event["bytes"]["sent"].as_f64()?));
        Curve(progress.filter_map(point).collect())
    }

    /// In bytes a second; none if the copy did not tell of all of the span.
    pub fn rate(&self, span: Range<f64>) -> Option<f64> {
        let (from, to) = (self.sent_at(span.start)?, self.sent_at(span.end)?);
        (span.end > span.start).then(|| (to - from) / (span.end - span.start))
    }

    /// How long after the start of a span a rate is reached: from then on the copy has it for `HELD_SECONDS`, and on
    /// average also to the end of the span. None if it never is.
    pub fn seconds_until(&self, span: Range<f64>, bytes_per_second: f64) -> Option<f64> {
        let has = |from: f64, to: f64| self.rate(from..to).is_some_and(|rate| rate >= bytes_per_second);
        let moments = (0..).map(|step: u32| span.start + f64::from(step) * STEP_SECONDS);
        let mut moments = moments.take_while(|from| from + HELD_SECONDS <= span.end);
        let reached = moments.find(|from| has(*from, from + HELD_SECONDS) && has(*from, span.end))?;
        Some(reached - span.start)
    }

    /// Mbit/s from one event to the next.
    pub fn drawn(&self) -> Vec<Point> {
        let of_pair = |pair: &[(f64, f64)]| {
            let seconds = (pair[1].0 - pair[0].0).max(1e-3);
            Point::at(pair[1].0, (pair[1].1 - pair[0].1) * 8.0 / 1e6 / seconds)
        };
        self.0.windows(2).map(of_pair).collect()
    }

    /// Between two events, in a straight line.
    fn sent_at(&self, seconds: f64) -> Option<f64> {
        let next = self.0.iter().position(|point| point.0 >= seconds)?;
        let (to, sent_to) = self.0[next];
        if to <= seconds {
            return Some(sent_to);
        }
        let (from, sent_from) = self.0[next.checked_sub(1)?];
        Some(sent_from + (sent_to - sent_from) * (seconds - from) / (to - from))
    }
}

/// The rate of each copy from when the last one had begun until the first one told no more.
pub fn shared_rates(curves: &[&Curve]) -> Option<Vec<f64>> {
    let (mut begin, mut end) = (0.0, f64::INFINITY);
    for curve in curves {
        begin = curve.0.first()?.0.max(begin);
        end = curve.0.last()?.0.min(end);
    }
    curves.iter().map(|curve| curve.rate(begin..end)).collect()
}

/// Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything.
pub fn jain(rates: &[f64]) -> Option<f64> {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Of a copy that sent so many bytes in each second.
    pub fn curve(rates: &[f64]) -> Curve {
        let mut sent = 0.0;
        let mut text = String::from("{\"event\":\"start\"}\nno event\n");
        for (second, rate) in (1..).zip(rates) {
            sent += rate;
            text += &format!("{{\"event\":\"progress\",\"seconds\":{second},\"bytes\":{{\"sent\":{sent}}}}}\n");
        }
        Curve::of(&text, 0.0)
    }

    /// In seconds after the third, in which the rate was 10.
    fn until(after: &[f64], wanted: f64) -> Option<f64> {
        let end = 3.0 + after.len() as f64;
        curve(&[&[10.0; 3][..], after].concat()).seconds_until(3.0..end, wanted)
    }

    #[test]
    fn a_rate_is_that_of_the_whole_span_and_none_where_nothing_was_told() {
        let curve = curve(&[10.0, 20.0, 0.0, 40.0]);
        assert_eq!((curve.rate(1.0..4.0), curve.rate(1.5..2.5)), (Some(20.0), Some(10.0)));
        assert_eq!((curve.rate(0.5..2.0), curve.rate(1.0..4.5), curve.rate(2.0..2.0)), (None, None, None));
        let later = Curve::of("{\"event\":\"progress\",\"seconds\":1,\"bytes\":{\"sent\":5}}", 2.5);
        assert_eq!(later, Curve(vec![(3.5, 5.0)]));
    }

    #[test]
    fn rates_are_drawn_in_mbit_at_the_end_of_each_interval() {
        let drawn = curve(&[1e6, 2e6, 0.0, 4e6]).drawn();
        let drawn: Vec<_> = drawn.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(drawn, [(2.0, 16.0), (3.0, 0.0), (4.0, 32.0)]);
    }

    #[test]
    fn a_rate_is_reached_once_it_holds_and_goes_on_to() {
        let near = |seconds: Option<f64>, expected: f64| {
            let seconds = seconds.unwrap();
            assert!((seconds - expected).abs() < 1e-6, "{seconds}, not {expected}");
        };
        near(until(&[10.0; 9], 9.5), 0.0);
        // In two seconds, at most an eighth of one may be slow.
        near(until(&[&[2.0; 4][..], &[10.0; 8]].concat(), 9.5), 3.9);
        // Two good seconds before five bad ones are no recovery.
        near(until(&[&[2.0][..], &[10.0; 2], &[2.0; 5], &[10.0; 4]].concat(), 9.5), 7.9);
        // One good second at the end is too few, and never is what is a little less.
        assert_eq!(until(&[&[2.0; 11][..], &[10.0]].concat(), 9.5), None);
        assert_eq!(until(&[9.0; 12], 9.5), None);
        // What was not told is not taken for good.
        assert_eq!(curve(&[10.0; 14]).seconds_until(3.0..15.0, 9.5), None);
    }

    #[test]
    fn fairness_is_one_for_equal_shares_and_half_where_one_of_two_has_all() {
        assert_eq!(jain(&[7.0, 7.0]), Some(1.0));
        assert_eq!(jain(&[7.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[3.0, 1.0]), Some(0.8));
        assert_eq!((jain(&[0.0, 0.0]), jain(&[])), (None, None));
    }

    #[test]
    fn copies_are_compared_over_the_time_that_they_share() {
        let (early, late) = (curve(&[30.0, 30.0, 30.0, 10.0, 10.0]), Curve(vec![(3.0, 0.0), (4.0, 20.0), (6.0, 60.0)]));
        assert_eq!(shared_rates(&[&early, &late]), Some(vec![10.0, 20.0]));
        assert_eq!(shared_rates(&[&early, &Curve(vec![(7.0, 0.0), (8.0, 9.0)])]), None);
        assert_eq!(shared_rates(&[&early, &Curve(Vec::new())]), None);
    }
}

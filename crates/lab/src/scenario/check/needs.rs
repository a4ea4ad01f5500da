//! What a scenario asks of a back end.

use crate::scenario::Scenario;
use crate::scenario::quantity::show_probability;

use super::memory::UNLIMITED_BITS_PER_SECOND;

/// Losses in one window of segments above which the loss of whole aggregates differs from the loss of segments.
///
/// Congestion control reacts once per round trip: up to here, almost every round trip with a loss has one loss.
const LOSSES_PER_WINDOW_MAX: f64 = 0.5;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Needs {
    /// Why packets must be copied or damaged one by one, which only `Backend::Tun` does; none: they need not be.
    pub tun: Option<String>,
    /// Sentences on where only `Backend::Tun` is exact. Others drop an aggregate of segments for one that is lost.
    pub recommendations: Vec<String>,
}

impl Scenario {
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        for (index, link) in self.links.iter().enumerate() {
            let events = link.timeline.iter().map(|event| link.changed_by(event));
            let states: Vec<_> = std::iter::once(link.directions).chain(events).flatten().collect();
            let most =
                |property: fn(&crate::scenario::Impairment) -> f64| states.iter().map(property).fold(0.0, f64::max);
            let (duplicate, corrupt) = (most(|state| state.duplicate), most(|state| state.corrupt));
            for (verb, probability) in [("duplicates", duplicate), ("corrupts", corrupt)] {
                if probability > 0.0 && needs.tun.is_none() {
                    needs.tun = Some(format!("link {} {verb} {}", link.name, show_probability(probability)));
                }
            }
            let window = self.window_segments(index);
            // An outage loses everything in every back end alike.
            let loss = states.iter().map(|state| state.loss).filter(|loss| *loss < 1.0).fold(0.0, f64::max);
            if loss * window > LOSSES_PER_WINDOW_MAX {
                needs.recommendations.push(format!(
                    "link {}: {} loss is {:.1} segments of a window of {:.0}; only the tun back end loses single segments",
                    link.name,
                    show_probability(loss),
                    loss * window,
                    window
                ));
            }
        }
        needs
    }

    /// Segments that fill a link for its longest round trip, in its faster direction.
    fn window_segments(&self, link: usize) -> f64 {
        let rates = self.links[link].directions.iter().map(|direction| direction.bits_per_second);
        let rate = rates.map(|rate| rate.unwrap_or(UNLIMITED_BITS_PER_SECOND)).max().unwrap_or_default();
        rate as f64 / 8.0 * self.round_trip_over(link).as_secs_f64() / f64::from(self.mtu_bytes)
    }
}

//! From values to places on an axis, and the ticks a person expects there.

use super::{Axis, Scale, Unit};

/// The part of an axis that is drawn.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    scale: Scale,
    unit: Unit,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Tick {
    pub value: f64,
    /// Empty for a line without a number.
    pub label: String,
}

impl Range {
    /// Covers the values with a round number at each end. `from_zero` shows zero on a linear axis whatever the values.
    pub fn of(axis: &Axis, values: impl IntoIterator<Item = f64>, from_zero: bool, ticks_max: usize) -> Range {
        let is_usable = |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for value in values.into_iter().filter(is_usable) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = if axis.scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        let (low, high) = match axis.scale {
            Scale::Linear => linear_ends(axis.unit, low, high, from_zero, ticks_max),
            Scale::Log2 => {
                let (low, high) = (low.log2().floor(), high.log2().ceil());
                (low.exp2(), if high > low { high } else { low + 1.0 }.exp2())
            }
            Scale::Log10 => {
                let (low, high) = (round_below(low), round_above(high));
                (low, if high > low { high } else { low * 10.0 })
            }
        };
        Range { scale: axis.scale, unit: axis.unit, low, high }
    }

    /// 0 at the low end, 1 at the high end; outside of that for values beyond.
    pub fn part(&self, value: f64) -> f64 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log2 | Scale::Log10 => value.max(f64::MIN_POSITIVE).ln(),
        };
        (place(value) - place(self.low)) / (place(self.high) - place(self.low))
    }

    /// At most about `labels_max` numbers, in rising order.
    pub fn ticks(&self, labels_max: usize) -> Vec<Tick> {
        match self.scale {
            Scale::Linear => self.linear_ticks(labels_max),
            Scale::Log2 => self.binary_ticks(labels_max),
            Scale::Log10 => self.decimal_ticks(labels_max),
        }
    }

    fn linear_ticks(&self, labels_max: usize) -> Vec<Tick> {
        let step = step_for(self.unit, self.high - self.low, labels_max);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|index| self.tick(index as f64 * step)).collect()
    }

    fn binary_ticks(&self, labels_max: usize) -> Vec<Tick> {
        let (low, high) = (self.low.log2().round() as i32, self.high.log2().round() as i32);
        // Steps that meet the units: 1 KiB, 32 KiB, 1 MiB.
        let steps: &[i32] = if self.unit == Unit::Bytes { &[1, 2, 5, 10, 20] } else { &[1, 2, 4, 8, 16, 32] };
        let fits = |step: &&i32| (high - low) / **step < labels_max.max(2) as i32;
        let step = *steps.iter().find(fits).unwrap_or(&64);
        (low..=high).filter(|power| power % step == 0).map(|power| self.tick(f64::from(power).exp2())).collect()
    }

    fn decimal_ticks(&self, labels_max: usize) -> Vec<Tick> {
        let (low, high) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10();
        let step = (decades / labels_max.max(2) as f64).ceil().max(1.0) as i32;
        let mut ticks = Vec::new();
        for power in low..=high {
            for leading in 1..10 {
                let value = f64::from(leading) * 10f64.powi(power);
                if value < self.low * (1.0 - 1e-9) || value > self.high * (1.0 + 1e-9) {
                    continue;
                }
                let is_labelled = match leading {
                    1 => power % step == 0,
                    2 | 5 => decades * 3.0 <= labels_max as f64,
                    _ => false,
                };
                if is_labelled {
                    ticks.push(self.tick(value));
                } else if step == 1 {
                    ticks.push(Tick { value, label: String::new() });
                }
            }
        }
        ticks
    }

    fn tick(&self, value: f64) -> Tick {
        let is_fraction = self.scale == Scale::Log2 && self.unit == Unit::Number && value < 1.0;
        let label = if is_fraction { format!("1/{}", number(1.0 / value)) } else { shown(self.unit, value) };
        Tick { value, label }
    }
}

/// A value as it stands at a tick.
pub fn shown(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Number => number(value),
        Unit::Milliseconds if value.abs() >= 1000.0 => format!("{} s", number(value / 1000.0)),
        Unit::Milliseconds => format!("{} ms", number(value)),
        Unit::Bytes => {
            const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
            let mut rest = value;
            let mut index = 0;
            while rest.abs() >= 1024.0 && index + 1 < UNITS.len() {
                (rest, index) = (rest / 1024.0, index + 1);
            }
            format!("{} {}", number(rest), UNITS[index])
        }
    }
}

/// Four digits at most after the leading zeros; thousands are separated; very large and small ones have a power of ten.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !value.is_finite() {
        return if size == 0.0 { "0".into() } else { "?".into() };
    }
    if !(1e-4..1e10).contains(&size) {
        let power = size.log10().floor() as i32;
        let leading = number((value / 10f64.powi(power) * 1000.0).round() / 1000.0);
        return if leading == "1" { format!("1e{power}") } else { format!("{leading}e{power}") };
    }
    let digits = (3 - size.log10().floor() as i32).clamp(0, 8) as usize;
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && whole.len() > 4 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped += fraction;
    }
    grouped
}

fn linear_ends(unit: Unit, low: f64, high: f64, from_zero: bool, ticks_max: usize) -> (f64, f64) {
    let low = if low > 0.0 && (from_zero || low < high / 2.0) { 0.0 } else { low };
    let high = if high < 0.0 && from_zero { 0.0 } else { high };
    let (low, high) = match high - low {
        span if span > 0.0 => (low, high),
        _ if low == 0.0 => (0.0, 1.0),
        _ => (low - low.abs() / 2.0, high + high.abs() / 2.0),
    };
    let step = step_for(unit, high - low, ticks_max);
    ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step)
}

/// 1, 2 or 5 times a power of ten; a power of two for bytes.
fn step_for(unit: Unit, span: f64, ticks_max: usize) -> f64 {
    let least = span / ticks_max.max(1) as f64;
    if unit == Unit::Bytes && least >= 1.0 {
        return least.log2().ceil().exp2();
    }
    let power = 10f64.powf(least.log10().floor());
    let leading = [1.0, 2.0, 5.0, 10.0].into_iter().find(|leading| leading * power >= least * (1.0 - 1e-9));
    leading.unwrap_or(10.0) * power
}

/// The next of 1, 2, 5 times a power of ten, downwards.
fn round_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let leading = [5.0, 2.0, 1.0].into_iter().find(|leading| leading * power <= value * (1.0 + 1e-9));
    leading.unwrap_or(1.0) * power
}

fn round_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let leading = [1.0, 2.0, 5.0, 10.0].into_iter().find(|leading| leading * power >= value * (1.0 - 1e-9));
    leading.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64], from_zero: bool) -> Vec<String> {
        let ticks = Range::of(axis, values.iter().copied(), from_zero, 6).ticks(6);
        ticks.into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        let rate = Axis::new("", Scale::Linear, Unit::Number);
        assert_eq!(labels(&rate, &[83.0, 97.7], true), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&rate, &[0.81, 0.97], false), ["0.8", "0.85", "0.9", "0.95", "1"]);
        assert_eq!(labels(&rate, &[3.0, 3.0], false), ["1.5", "2", "2.5", "3", "3.5", "4", "4.5"]);
        let latency = Axis::new("", Scale::Linear, Unit::Milliseconds);
        assert_eq!(labels(&latency, &[10.0, 100.0], false), ["0 ms", "20 ms", "40 ms", "60 ms", "80 ms", "100 ms"]);
        let size = Axis::new("", Scale::Log2, Unit::Bytes);
        assert_eq!(labels(&size, &[1024.0, 1e12], false), ["1 KiB", "1 MiB", "1 GiB", "1 TiB"]);
        assert_eq!(labels(&size, &[1024.0, 1024.0], false), ["1 KiB", "2 KiB"]);
        let parts = Axis::new("", Scale::Log2, Unit::Number);
        assert_eq!(labels(&parts, &[0.0625, 1.0], false), ["1/16", "1/8", "1/4", "1/2", "1"]);
        let loss = Axis::new("", Scale::Log10, Unit::Number);
        assert_eq!(labels(&loss, &[1e-7, 1e-3], false), ["1e-7", "1e-6", "1e-5", "0.0001", "0.001"]);
        assert_eq!(labels(&loss, &[1.2, 8.0], false), ["1", "2", "5", "10"]);
        assert_eq!(labels(&loss, &[0.0, f64::NAN], false), ["1", "2", "5", "10"]);
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<_> = [35_889.0, 1024.0, 0.294, 97.5, -3.25, 4.6e-5, 1.5e12].map(number).into();
        assert_eq!(shown, ["35,889", "1024", "0.294", "97.5", "-3.25", "4.6e-5", "1.5e12"]);
        assert_eq!(super::shown(Unit::Bytes, 1.5 * 1_073_741_824.0), "1.5 GiB");
        assert_eq!(super::shown(Unit::Milliseconds, 1500.0), "1.5 s");
    }

    #[test]
    fn a_value_has_its_place_between_the_ends() {
        let size = Range::of(&Axis::new("", Scale::Log2, Unit::Bytes), [1024.0, 1_048_576.0], false, 6);
        assert!((size.part(32_768.0) - 0.5).abs() < 1e-12 && size.part(512.0) < 0.0);
    }
}

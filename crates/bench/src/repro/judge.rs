//! Claims about a figure, held against what was measured.

use serde::Serialize;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Pass,
    Fail,
    /// The run does not allow a verdict.
    Void,
    /// There is nothing to pass: a figure beside the published one.
    Told,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    pub claim: String,
    pub expected: String,
    pub measured: String,
    pub verdict: Verdict,
    /// A machine that was disturbed may have had a part in it. What is wrong or untrue is so on any machine.
    #[serde(skip)]
    pub is_of_time: bool,
}

impl Check {
    /// None where nothing was measured.
    pub fn at_least(claim: impl Into<String>, limit: f64, measured: Option<f64>) -> Check {
        Check::of(claim, format!(">= {}", shown(limit)), measured.map(|value| (shown(value), value >= limit)))
    }

    pub fn at_most(claim: impl Into<String>, limit: f64, measured: Option<f64>) -> Check {
        Check::of(claim, format!("<= {}", shown(limit)), measured.map(|value| (shown(value), value <= limit)))
    }

    pub fn within(claim: impl Into<String>, low: f64, high: f64, measured: Option<f64>) -> Check {
        let holds = |value: f64| (low..=high).contains(&value);
        Check::of(
            claim,
            format!("{} to {}", shown(low), shown(high)),
            measured.map(|value| (shown(value), holds(value))),
        )
    }

    /// A figure without a condition.
    pub fn told(claim: impl Into<String>, published: impl Into<String>, measured: impl Into<String>) -> Check {
        let (expected, measured) = (published.into(), measured.into());
        Check { claim: claim.into(), expected, measured, verdict: Verdict::Told, is_of_time: true }
    }

    pub fn of(claim: impl Into<String>, expected: impl Into<String>, measured: Option<(String, bool)>) -> Check {
        let (measured, verdict) = match measured {
            Some((measured, true)) => (measured, Verdict::Pass),
            Some((measured, false)) => (measured, Verdict::Fail),
            None => ("no counted run".into(), Verdict::Void),
        };
        Check { claim: claim.into(), expected: expected.into(), measured, verdict, is_of_time: true }
    }

    /// The same, whose verdict holds however late the machine was.
    pub fn of_any_machine(self) -> Check {
        Check { is_of_time: false, ..self }
    }

    /// The same verdict, with why the laboratory may have had a part in it.
    pub fn beside(self, late: &[String]) -> Check {
        const SHOWN_MAX: usize = 3;
        if late.is_empty() {
            return self;
        }
        let mut reasons = late[..late.len().min(SHOWN_MAX)].join("; ");
        if late.len() > SHOWN_MAX {
            reasons += &format!("; and {} more", late.len() - SHOWN_MAX);
        }
        Check { measured: format!("{} (the laboratory was late: {reasons})", self.measured), ..self }
    }

    pub fn shown(&self) -> String {
        let Check { claim, expected, measured, .. } = self;
        let expected = if expected.is_empty() { String::new() } else { format!(" ({expected})") };
        format!("{} {claim}: {measured}{expected}", self.verdict.word())
    }
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Void => "VOID",
            Verdict::Told => "    ",
        }
    }
}

/// Three significant digits.
pub fn shown(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    format!("{value:.*}", (2 - magnitude).clamp(0, 6) as usize)
}

pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    crate::statistics::Spread::of(values).map(|spread| spread.median)
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_a_measurement_is_void_and_never_passes() {
        assert_eq!(Check::at_least("rate", 0.9, None).verdict, Verdict::Void);
        assert_eq!(Check::at_least("rate", 0.9, Some(0.9)).verdict, Verdict::Pass);
        assert_eq!(Check::at_least("rate", 0.9, Some(f64::NAN)).verdict, Verdict::Fail);
        assert_eq!(Check::within("ratio", 0.95, 1.05, Some(1.2)).verdict, Verdict::Fail);
        assert_eq!(Check::at_most("cost", 2.0, Some(1.234)).shown(), "PASS cost: 1.23 (<= 2.00)");
        assert_eq!([0.0, 0.0123, 12.34, 1234.5].map(shown), ["0.00", "0.0123", "12.3", "1234"]);
    }

    #[test]
    fn a_late_laboratory_is_told_and_changes_no_verdict() {
        let late: Vec<String> = (1..=5).map(|run| format!("run {run}")).collect();
        for (value, verdict) in [(0.95, Verdict::Pass), (0.5, Verdict::Fail)] {
            let check = Check::at_least("rate", 0.9, Some(value));
            assert_eq!(check.clone().beside(&[]), check);
            let told = check.beside(&late);
            assert_eq!(told.verdict, verdict);
            let end = "(the laboratory was late: run 1; run 2; run 3; and 2 more) (>= 0.900)";
            assert!(told.shown().ends_with(end), "{}", told.shown());
        }
    }
}

//! What is computed from the samples of a race.

use serde::Serialize;

use crate::compare::record::Report;
use crate::statistics::{Column, Ratio, Summary, columns, ratios, summarize_on};

#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub summaries: Vec<Summary>,
    pub ratios: Vec<Ratio>,
    /// Averages over the sets of a condition.
    pub columns: Vec<Column>,
}

impl Figures {
    pub fn of(report: &Report) -> Figures {
        let summaries = summarize_on(&report.samples, report.environment.cores);
        Figures { ratios: ratios(&report.samples), columns: columns(&summaries, 0), summaries }
    }
}

//! What was measured of a way between two storages, as a file, and what it predicts of a transfer.
//!
//! Owns the written form of a calibration, version 1, and the prediction from it. Invariants: raw points are kept beside what
//! was made of them; a prediction is an interval, taken from the scatter of the points and never narrower than repeated
//! measurements of one setting are. Not here: measuring (`cli`), steady models (`graph`, `solve`).

mod written;
mod level;
mod ramp;
mod predict;
mod model;
mod settings;
mod import;

pub use import::import;
pub use level::is_behind;
pub use predict::{DataSet, Prediction, candidates, predict};
pub use ramp::warm_up_seconds;
pub use settings::{Chosen, Compressed, Content, Setting, choose};
pub use written::{
    Calibration, Circumstances, Curve, EngineRun, Measured, Part, Run, Steady, Unusable, VERSION, bytes_of, median,
};

#[cfg(test)]
mod tests;

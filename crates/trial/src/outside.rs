//! What trials from outside share: hosts with processes on them, what stands at a destination, and a relay between.
//!
//! Nothing here knows the product's protocol or storage; it starts programs and looks at files.

pub mod ground;
pub mod process;
pub mod relay;
pub mod tree;

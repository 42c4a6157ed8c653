pub mod bins;
pub mod coverage;
pub mod depth;
pub mod latency;
pub mod peaks;
pub mod seeks;

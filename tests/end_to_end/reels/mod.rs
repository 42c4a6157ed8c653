pub(crate) mod damaged;
pub(crate) mod samples;

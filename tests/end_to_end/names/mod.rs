pub(crate) mod derived;
pub(crate) mod identity;

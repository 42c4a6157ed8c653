pub(crate) mod filters;
pub(crate) mod follow;
pub(crate) mod midway;
pub(crate) mod private;

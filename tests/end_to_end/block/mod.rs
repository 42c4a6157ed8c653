pub(crate) mod attribution;
pub(crate) mod bytes;
pub(crate) mod devices;
pub(crate) mod requests;
pub(crate) mod stacked;
pub(crate) mod truth;
pub(crate) mod uncommon;
pub(crate) mod witness;

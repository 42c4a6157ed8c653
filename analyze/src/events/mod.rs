pub mod bios;
pub mod calls;
pub(crate) mod order;
pub mod requests;
pub mod scope;
pub mod stages;

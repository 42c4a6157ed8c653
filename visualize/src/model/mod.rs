pub(crate) mod caption;
pub mod offset_axis;
pub(crate) mod palette;
pub(crate) mod shape;
pub mod survey;
pub(crate) mod value_axis;

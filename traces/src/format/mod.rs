pub mod bytes;
pub mod columns;
pub mod disk;
pub mod manifest;
pub mod rows;
pub mod table;
pub mod tables;
pub mod text;

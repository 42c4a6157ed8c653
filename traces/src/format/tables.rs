//! The list of all tables, for code that treats all tables alike.

use crate::format::{
    rows,
    table::{ColumnInfo, Row},
};

/// Is called for each table.
pub trait Visitor {
    /// Error of a call.
    type Error;
    /// Called once per table, with its row type.
    fn table<R: Row>(&mut self) -> Result<(), Self::Error>;
}

/// Calls `visitor` for every table. Tables that other tables refer to come first. Stops at the first error.
pub fn each<V: Visitor>(visitor: &mut V) -> Result<(), V::Error> {
    visitor.table::<rows::Task>()?;
    visitor.table::<rows::File>()?;
    visitor.table::<rows::Exec>()?;
    visitor.table::<rows::Fd>()?;
    visitor.table::<rows::Map>()?;
    visitor.table::<rows::Tree>()?;
    visitor.table::<rows::FinalName>()?;
    visitor.table::<rows::Extent>()?;
    visitor.table::<rows::Op>()?;
    visitor.table::<rows::Name>()?;
    visitor.table::<rows::Wait>()?;
    visitor.table::<rows::Commit>()?;
    visitor.table::<rows::Block>()?;
    visitor.table::<rows::Bio>()?;
    visitor.table::<rows::Cache>()?;
    visitor.table::<rows::Content>()?;
    visitor.table::<rows::Action>()?;
    visitor.table::<rows::Stop>()
}

/// Description of a table for other readers.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Its folder in the reel.
    pub name: &'static str,
    /// The column its segments are sorted by.
    pub sorted_by: &'static str,
    /// Its id column, if the writer assigns ids.
    pub id: Option<&'static str>,
    /// Its columns, in order.
    pub columns: Vec<ColumnInfo>,
}

/// Every table with its columns.
pub fn all() -> Vec<TableInfo> {
    struct Collect(Vec<TableInfo>);
    impl Visitor for Collect {
        type Error = std::convert::Infallible;
        fn table<R: Row>(&mut self) -> Result<(), Self::Error> {
            self.0.push(TableInfo { name: R::TABLE, sorted_by: R::TIME, id: R::ID, columns: R::fields() });
            Ok(())
        }
    }
    let mut collect = Collect(Vec::new());
    let Ok(()) = each(&mut collect);
    collect.0
}

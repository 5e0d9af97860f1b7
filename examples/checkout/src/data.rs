//! Reads products and orders from CSV files with the columns of the Northwind sample database.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use scoop::prelude::*;

use crate::orders::{Line, OrderPlaced};

pub struct Product {
    pub id: i32,
    pub name: String,
    pub units: i32,
    pub discontinued: bool,
}

pub struct Shop {
    pub products: Vec<Product>,
    pub orders: Vec<OrderPlaced>,
}

pub fn read(folder: &Path) -> Result<Shop> {
    let products = read_rows(&folder.join("products.csv"), product)?;
    let mut orders = read_rows(&folder.join("orders.csv"), order)?;
    let mut lines = HashMap::<i32, Vec<Line>>::new();
    for (order, line) in read_rows(&folder.join("order-details.csv"), line)? {
        lines.entry(order).or_default().push(line);
    }
    for order in &mut orders {
        order.lines = lines.remove(&order.order).unwrap_or_default();
    }
    Ok(Shop { products, orders })
}

// Names and addresses may contain commas without being quoted, so each row is parsed from both ends, and its
// middle is ignored.

fn product(columns: &[&str]) -> Option<Product> {
    let [id, name, .., units, _on_order, _reorder_level, discontinued] = columns else {
        return None;
    };
    Some(Product {
        id: id.parse().ok()?,
        name: (*name).into(),
        units: units.parse().ok()?,
        discontinued: *discontinued == "1",
    })
}

fn order(columns: &[&str]) -> Option<OrderPlaced> {
    let [id, _customer, _employee, _ordered, _required, _shipped, shipper, .., country] = columns else {
        return None;
    };
    Some(OrderPlaced {
        order: id.parse().ok()?,
        country: (*country).into(),
        shipper: shipper.parse().ok()?,
        lines: vec![],
    })
}

fn line(columns: &[&str]) -> Option<(i32, Line)> {
    let [order, product, price, units, discount] = columns else {
        return None;
    };
    let units: i32 = units.parse().ok()?;
    let full = hundredths(price)? * i64::from(units);
    let cents = (full * (100 - hundredths(discount)?) + 50) / 100;
    let product = product.parse().ok()?;
    Some((order.parse().ok()?, Line { product, units, cents }))
}

/// Parses a decimal: `12.5` is 1250. No amount is ever a floating-point number.
fn hundredths(decimal: &str) -> Option<i64> {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    format!("{whole}{fraction:0<2.2}").parse().ok()
}

fn read_rows<T>(file: &Path, parse: impl Fn(&[&str]) -> Option<T>) -> Result<Vec<T>> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| Error::msg(format!("{name}: {error}")))?;
    let parse = |(at, row): (usize, &str)| {
        let columns: Vec<_> = row.split(',').map(str::trim).collect();
        let number = at + 1;
        parse(&columns).ok_or_else(|| Error::msg(format!("{name}:{number}: not understood: {row}")))
    };
    text.lines().enumerate().skip(1).map(parse).collect()
}

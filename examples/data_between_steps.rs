//! The value of a step is stored, and found by its type. Later steps ask for a `&T`, or for an `Option<&T>` if
//! the step may not have run. A step in a loop asks for its own type. `With` both names the next step and
//! returns a value.
//!
//! ```text
//! cargo run -p examples --example data_between_steps
//! ```

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct InvoiceWanted {
    cents_by_line: Vec<i64>,
    regular_customer: bool,
    address: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct InvoiceNumber(String);

/// The sum of the lines so far.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Subtotal {
    lines: usize,
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct Discount {
    cents: i64,
}

#[derive(Default)]
struct Invoicing;

#[saga]
#[subscribes(InvoiceWanted)]
impl Invoicing {
    #[step]
    async fn number(&self, scope: &mut Scope<'_>, _: &InvoiceWanted) -> Result<InvoiceNumber> {
        Ok(InvoiceNumber(format!("2026-{}", &scope.message_id().simple().to_string()[28..])))
    }

    /// Gets its own previous value: none at first.
    #[step(rollback = strike_out)]
    async fn add_line(
        &self,
        _: &mut Scope<'_>,
        invoice: &InvoiceWanted,
        so_far: Option<&Subtotal>,
    ) -> Result<With<InvoicingStep, Subtotal>> {
        let Subtotal { lines, cents } = so_far.unwrap_or(&Subtotal { lines: 0, cents: 0 });
        let subtotal = Subtotal { lines: lines + 1, cents: cents + invoice.cents_by_line[*lines] };
        let next = if subtotal.lines < invoice.cents_by_line.len() {
            Next::Repeat
        } else if invoice.regular_customer {
            Next::Continue
        } else {
            Next::goto(InvoicingStep::Send)
        };
        Ok(next.with(subtotal))
    }

    #[step]
    async fn give_discount(&self, _: &mut Scope<'_>, _: &InvoiceWanted, of: &Subtotal) -> Result<Discount> {
        Ok(Discount { cents: of.cents / 10 })
    }

    /// Takes values in any order. A plain `&Discount` would fail the step where `Discount` was skipped.
    #[step]
    async fn send(
        &self,
        _: &mut Scope<'_>,
        invoice: &InvoiceWanted,
        discount: Option<&Discount>,
        subtotal: &Subtotal,
        number: &InvoiceNumber,
    ) -> Result<()> {
        let cents = subtotal.cents - discount.map_or(0, |discount| discount.cents);
        println!("{}: {} lines, {cents} cents", number.0, subtotal.lines);
        assert_eq!((subtotal.lines, cents), (3, if invoice.regular_customer { 540 } else { 600 }));
        invoice.address.as_ref().map(|_| ()).ok_or_else(|| Error::msg("no address"))
    }

    /// Gets the value of exactly the instance that it compensates, not the newest.
    async fn strike_out(
        &self,
        scope: &mut Scope<'_>,
        invoice: &InvoiceWanted,
        subtotal: &Subtotal,
        number: &InvoiceNumber,
        _why: &Failure,
    ) -> Result<()> {
        let lines = scope.iteration() as usize + 1;
        println!("{}: line {lines} removed, the sum was {} cents", number.0, subtotal.cents);
        assert_eq!(*subtotal, Subtotal { lines, cents: invoice.cents_by_line[..lines].iter().sum() });
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let invoice = |regular_customer, address: Option<&str>| InvoiceWanted {
        cents_by_line: vec![100, 200, 300],
        regular_customer,
        address: address.map(Into::into),
    };
    for regular in [true, false] {
        let sent = scoop.launch(invoice(regular, Some("1 Main Street"))).await?;
        assert_eq!(sent.wait().await?, Outcome::Committed);
    }
    let void = scoop.launch(invoice(true, None)).await?;
    let Outcome::RolledBack(why) = void.wait().await? else { panic!("{}", void.tree().await?) };
    assert_eq!(why.message, "no address");
    scoop.shutdown().await?;
    Ok(())
}

//! Effects that happen once. A step runs again when its process dies or its connection breaks. So it produces
//! effects outside of the database under `idempotency_key()`, which stays the same. Messages are launched once
//! under a key of yours.
//!
//! ```text
//! cargo run -p examples --example idempotency
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;

use scoop::prelude::*;
use uuid::Uuid;

#[derive(Message, Serialize, Deserialize)]
struct TicketBought {
    customer: Uuid,
}

#[derive(Message, Serialize, Deserialize)]
struct WelcomeCustomer {
    customer: Uuid,
}

/// An external payment provider that supports keys: it stores a file for each payment.
fn provider(customer: Uuid) -> PathBuf {
    std::env::temp_dir().join(format!("scoop-payments-{customer}"))
}

/// Returns whether the money moved now, or already had under this key.
fn pay(customer: Uuid, key: Uuid) -> Result<bool> {
    fs::create_dir_all(provider(customer))?;
    match File::create_new(provider(customer).join(key.to_string())) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::infrastructure(error)),
    }
}

#[derive(Default)]
struct TicketOffice;

#[saga]
#[subscribes(TicketBought)]
impl TicketOffice {
    #[step]
    async fn charge(&self, scope: &mut Scope<'_>, ticket: &TicketBought) -> Result<()> {
        let moved = pay(ticket.customer, scope.idempotency_key())?;
        println!("  attempt {}: {}", scope.attempt(), if moved { "paid" } else { "was paid already" });
        // The answer got lost twice. Such an error does not fail the step: it runs again.
        if scope.attempt() < 2 { Err(Error::infrastructure("the line went dead")) } else { Ok(()) }
    }

    /// Another step, or another instance of the same, has another key.
    #[step]
    async fn charge_for_the_bag(&self, scope: &mut Scope<'_>, ticket: &TicketBought) -> Result<()> {
        let moved = pay(ticket.customer, scope.idempotency_key())?;
        if moved || scope.attempt() > 0 { Ok(()) } else { Err(Error::msg("that was another payment")) }
    }

    /// Sends one letter for any number of tickets. The order neither waits for it nor rolls it back.
    #[step]
    async fn welcome(&self, scope: &mut Scope<'_>, ticket: &TicketBought) -> Result<()> {
        let customer = ticket.customer;
        let key = format!("welcome {customer}");
        let letter = scope.detach_unique(WelcomeCustomer { customer }, &key).await?;
        println!(
            "  letter {} {}",
            letter.hierarchy,
            if letter.is_new { "is on its way" } else { "was sent before" }
        );
        Ok(())
    }
}

#[derive(Default)]
struct WelcomeLetters;

#[saga]
#[subscribes(WelcomeCustomer)]
impl WelcomeLetters {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, to: &WelcomeCustomer) -> Result<()> {
        println!("  welcome, {}", to.customer);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let customer = Uuid::new_v4();

    // A second click, or a repeated request after a lost answer, buys no second ticket.
    let first = scoop.launch(TicketBought { customer }).unique(format!("{customer}, to Oslo")).await?;
    let again = scoop.launch(TicketBought { customer }).unique(format!("{customer}, to Oslo")).await?;
    assert_eq!(first.id(), again.id());
    assert_eq!(again.wait().await?, Outcome::Committed);
    assert_eq!(fs::read_dir(provider(customer))?.count(), 2, "one for the ticket, one for the bag");

    println!("and back");
    let back = scoop.launch(TicketBought { customer }).unique(format!("{customer}, from Oslo")).await?;
    assert_ne!(back.id(), first.id());
    assert_eq!(back.wait().await?, Outcome::Committed);
    assert_eq!(fs::read_dir(provider(customer))?.count(), 4);

    // Both tickets led to one letter: another launch finds the same one.
    let key = format!("welcome {customer}");
    let letter = scoop.launch(WelcomeCustomer { customer }).unique(key).await?;
    assert_eq!(letter.wait().await?, Outcome::Committed);

    fs::remove_dir_all(provider(customer))?;
    scoop.shutdown().await?;
    Ok(())
}

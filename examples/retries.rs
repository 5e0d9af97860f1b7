//! Attempts before a failure counts. Between two attempts the run rests in the database, without a task or a
//! connection. A program that is restarted continues the count.
//!
//! ```text
//! cargo run -p examples --example retries
//! ```

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct CardPresented {
    card: Card,
    shop_closes: bool,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Card {
    Good,
    Stolen,
    Foreign,
}

#[derive(Debug, thiserror::Error)]
#[error("the bank is busy")]
struct BankBusy;

#[derive(Debug, thiserror::Error)]
#[error("card stolen, at attempt {0}")]
struct Stolen(u32);

#[derive(Debug, thiserror::Error)]
#[error("card not accepted, at attempt {0}")]
struct NotAccepted(u32);

#[derive(Default)]
struct CardTerminal;

#[saga]
#[subscribes(CardPresented)]
impl CardTerminal {
    /// Pauses of 20, 40, 80 and 80 ms, each a little shorter or longer by chance.
    #[step(
        rollback = refund,
        retry(max = 4, backoff = "20ms..80ms", jitter = 0.2, when = is_worth_it),
        rollback_retry(max = 2, backoff = "20ms")
    )]
    async fn charge(&self, scope: &mut Scope<'_>, payment: &CardPresented) -> Result<()> {
        println!("  attempt {}", scope.attempt());
        match (scope.attempt(), payment.card) {
            (0 | 1, _) => Err(BankBusy.into()),
            (_, Card::Good) => Ok(()),
            // The step itself decides that another attempt would not help ..
            (attempt, Card::Stolen) => Err(Error::permanent(Stolen(attempt))),
            // .. or the function that examines its errors does.
            (attempt, Card::Foreign) => Err(NotAccepted(attempt).into()),
        }
    }

    fn is_worth_it(error: &Error) -> bool {
        error.downcast_ref::<BankBusy>().is_some()
    }

    /// A compensation that fails for good needs an operator, so it gets some attempts.
    async fn refund(&self, scope: &mut Scope<'_>, _: &CardPresented, _: &Failure) -> Result<()> {
        println!("  refund, attempt {}", scope.attempt());
        if scope.attempt() < 2 { Err(BankBusy.into()) } else { Ok(()) }
    }

    #[step]
    async fn hand_over(&self, scope: &mut Scope<'_>, payment: &CardPresented) -> Result<()> {
        assert_eq!(scope.attempt(), 0, "each step counts its own attempts");
        if payment.shop_closes { Err(Error::msg("we are closed")) } else { Ok(()) }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    for (card, shop_closes, failure) in [
        (Card::Good, false, None),
        (Card::Stolen, false, Some("card stolen, at attempt 2")),
        (Card::Foreign, false, Some("card not accepted, at attempt 2")),
        (Card::Good, true, Some("we are closed")),
    ] {
        println!("a card, and how it ends: {failure:?}");
        let payment = scoop.launch(CardPresented { card, shop_closes }).await?;
        match (payment.wait().await?, failure) {
            (Outcome::Committed, None) => {}
            (Outcome::RolledBack(why), Some(failure)) => assert_eq!(why.message, failure),
            (other, _) => panic!("{other:#}\n{}", payment.tree().await?),
        }
    }
    scoop.shutdown().await?;
    Ok(())
}

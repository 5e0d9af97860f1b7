//! Which replies and which children a call gets: those of the whole last step.

use scoop::{Child as ChildOf, ChildOutcome};

use super::*;
use crate::support::{Database, Notes};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "book-night", reply = Booking)]
struct BookNight {
    night: u32,
    /// The number of failures still to come.
    failures: u32,
}

#[derive(Serialize, Deserialize)]
struct Booking {
    night: u32,
}

/// Replies first, and fails then: so there are replies of bookings that were rolled back.
#[derive(Default)]
struct Hotel;

#[saga(name = "hotel")]
#[subscribes(BookNight)]
impl Hotel {
    #[step]
    async fn promise(&self, scope: &mut Scope<'_>, book: &BookNight) -> Result<()> {
        scope.reply(book, Booking { night: book.night })
    }

    #[step]
    async fn book(&self, _: &mut Scope<'_>, book: &BookNight) -> Result<()> {
        if book.failures > 0 { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

async fn book(scope: &mut Scope<'_>, nights: &[(u32, u32)]) -> Result<()> {
    for &(night, failures) in nights {
        scope.launch(BookNight { night, failures }).await?;
    }
    Ok(())
}

/// The nights that were booked.
async fn booked(scope: &mut Scope<'_>) -> Result<Vec<u32>> {
    Ok(scope.replies::<BookNight>().await?.iter().map(|reply| reply.value.night).collect())
}

async fn ever_booked(scope: &mut Scope<'_>) -> Result<Vec<u32>> {
    Ok(scope.all_replies::<BookNight>().await?.iter().map(|reply| reply.value.night).collect())
}

/// The night of each child, with its outcome.
fn replies_of(children: &[ChildOf]) -> Result<Vec<String>> {
    let each = children.iter().map(|child| {
        let BookNight { night, .. } = child.message()?;
        let outcome = match &child.outcome {
            ChildOutcome::Committed => "booked",
            ChildOutcome::RolledBack(_) if child.handled => "handled",
            ChildOutcome::RolledBack(_) => "failed",
            other => panic!("{other:?}"),
        };
        Ok(format!("{night} {outcome}"))
    });
    each.collect()
}

async fn run(scoop: scoop::Builder) -> Result<Outcome> {
    let scoop = scoop.only::<Hotel>().start().await?;
    let root = scoop.launch(Root).await?;
    Ok(root.ends().await?)
}

mod launched_again {
    use super::*;

    struct Trip {
        notes: Notes,
    }

    #[saga(name = "trip")]
    #[subscribes(Root)]
    impl Trip {
        #[step(on_child_failure = again)]
        async fn book(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            book(scope, &[(1, 0), (2, 2), (3, 1)]).await
        }

        async fn again(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            let children = scope.children().await?;
            self.notes.add(format!("{:?} of {:?}", booked(scope).await?, replies_of(&children)?));
            for child in children.iter().filter(|child| child.outcome.failure().is_some() && !child.handled) {
                let BookNight { night, failures } = child.message()?;
                scope.launch(BookNight { night, failures: failures - 1 }).await?;
            }
            Ok(())
        }

        #[step]
        async fn add_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let children = scope.children().await?;
            self.notes.add(format!("{:?} of {:?}", booked(scope).await?, replies_of(&children)?));
            let all = scope.all_children().await?;
            assert_eq!((all.len(), ever_booked(scope).await?.len()), (6, 3));
            let replies = scope.replies::<BookNight>().await?;
            for reply in replies {
                let child = children.iter().find(|child| child.message_id == reply.message_id);
                let child = child.expect("each reply is that of a child");
                assert_eq!((child.outcome.clone(), &*reply.handler), (ChildOutcome::Committed, "hotel"));
                assert_eq!(child.message::<BookNight>()?.night, reply.value.night);
            }
            Ok(())
        }

        #[step]
        async fn later(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert!(scope.children().await?.is_empty() && booked(scope).await?.is_empty());
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn children_launched_again_by_the_failure_handler_count_with_the_others() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let outcome = run(db.scoop().only::<Trip>().provide(Trip { notes: notes.clone() })).await?;
        assert_eq!(outcome, Outcome::Committed);
        assert_eq!(
            notes.all(),
            [
                r#"[1] of ["1 booked", "2 failed", "3 failed"]"#,
                r#"[1, 3] of ["1 booked", "2 handled", "3 handled", "2 failed", "3 booked"]"#,
                r#"[1, 3, 2] of ["1 booked", "2 handled", "3 handled", "2 handled", "3 booked", "2 booked"]"#,
            ]
        );
        Ok(())
    }
}

mod let_be {
    use super::*;

    handler! {
        Trip: "trip" on Root;
        #[step(on_child_failure = let_be)]
        async fn book(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            book(scope, &[(1, 0), (2, 1), (3, 0)]).await
        }

        on_child_failure let_be => accepts();

        #[step]
        async fn add_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert_eq!(booked(scope).await?, [1, 3]);
            assert_eq!(ever_booked(scope).await?, [1, 3], "a night that was given back is not booked");
            assert_eq!(replies_of(&scope.children().await?)?, ["1 booked", "2 handled", "3 booked"]);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn accepted_failure_keeps_the_other_replies_and_has_none_of_its_own() -> Result<()> {
        let db = Database::new().await;
        assert_eq!(run(db.scoop().only::<Trip>()).await?, Outcome::Committed);
        Ok(())
    }
}

mod iterations {
    use super::*;

    #[derive(Default)]
    struct Trip;

    #[saga(name = "trip")]
    #[subscribes(Root)]
    impl Trip {
        #[step(on_child_failure = again)]
        async fn book(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<TripStep>> {
            let before = booked(scope).await?;
            match scope.iteration() {
                0 => assert!(before.is_empty(), "{before:?}"),
                _ => assert_eq!(before, [2, 1], "of the iteration before this one"),
            }
            if scope.iteration() == 2 {
                return Ok(Next::Continue);
            }
            book(scope, &[(1, 1), (2, 0)]).await?;
            Ok(Next::Repeat)
        }

        async fn again(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            book(scope, &[(1, 0)]).await
        }

        #[step(finally = settle)]
        async fn extend(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert!(scope.children().await?.is_empty(), "the last iteration has launched nothing");
            book(scope, &[(6, 0)]).await
        }

        async fn settle(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert_eq!(booked(scope).await?, [6]);
            book(scope, &[(7, 0)]).await
        }

        #[step]
        async fn add_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert_eq!(booked(scope).await?, [6, 7]);
            assert_eq!(ever_booked(scope).await?, [2, 1, 2, 1, 6, 7]);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn iterations_are_steps_of_their_own_and_a_finally_belongs_to_its_step() -> Result<()> {
        let db = Database::new().await;
        let outcome = run(db.scoop().only::<Trip>()).await?;
        assert_eq!(outcome, Outcome::Committed);
        Ok(())
    }
}

mod on_the_way_back {
    use super::*;

    struct Trip {
        notes: Notes,
    }

    #[saga(name = "trip")]
    #[subscribes(Root)]
    impl Trip {
        #[step(on_child_failure = again, rollback = undo, finally = settle)]
        async fn book(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            book(scope, &[(1, 0), (2, 1)]).await
        }

        async fn again(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            book(scope, &[(3, 0)]).await
        }

        async fn settle(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("{:?}", booked(scope).await?));
            book(scope, &[(4, 0)]).await
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            let children = replies_of(&scope.children().await?)?;
            self.notes.add(format!("{:?} {:?}", booked(scope).await?, children));
            assert!(ever_booked(scope).await?.is_empty());
            Ok(())
        }

        #[step(finally = clean_up)]
        async fn fail(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert_eq!(booked(scope).await?, [1, 3, 4]);
            book(scope, &[(5, 0)]).await?;
            Err(SIMULATED.into())
        }

        async fn clean_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("{}", scope.children().await?.len()));
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn compensation_gets_the_children_of_its_whole_step() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let outcome = run(db.scoop().only::<Trip>().provide(Trip { notes: notes.clone() })).await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        assert_eq!(
            notes.all(),
            ["[1, 3]", "0", r#"[] ["1 handled", "2 handled", "3 handled", "4 handled"]"#],
            "a step that failed has launched nothing"
        );
        Ok(())
    }
}

mod failing_to_go_back {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "buy-ticket", reply = u32)]
    struct BuyTicket {
        number: u32,
        refundable: bool,
    }

    #[derive(Default)]
    struct TicketOffice;

    #[saga(name = "ticket-office")]
    #[subscribes(BuyTicket)]
    impl TicketOffice {
        #[step(rollback = refund)]
        async fn sell(&self, scope: &mut Scope<'_>, buy: &BuyTicket) -> Result<()> {
            scope.reply(buy, buy.number)
        }

        async fn refund(&self, _: &mut Scope<'_>, buy: &BuyTicket, _: &Failure) -> Result<()> {
            if buy.refundable { Ok(()) } else { Err(SIMULATED.into()) }
        }
    }

    struct Trip {
        notes: Notes,
    }

    #[saga(name = "trip")]
    #[subscribes(Root)]
    impl Trip {
        #[step(on_child_failure = let_be)]
        async fn buy(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            for (number, refundable) in [(1, true), (2, false)] {
                scope.launch(BuyTicket { number, refundable }).await?;
            }
            Ok(())
        }

        async fn let_be(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            for child in scope.children().await? {
                let ticket = child.message::<BuyTicket>()?.number;
                let outcome = match child.outcome {
                    ChildOutcome::RolledBack(_) => "given back",
                    ChildOutcome::RollbackFailed { .. } => "kept",
                    other => panic!("{other:?}"),
                };
                self.notes.add(format!("{ticket} {outcome}"));
            }
            assert!(scope.replies::<BuyTicket>().await?.is_empty());
            let no_ticket = scope.children().await?[0].message::<BookNight>().map(drop);
            self.notes.add(no_ticket.expect_err("it is a ticket").to_string());
            Ok(())
        }

        #[step]
        async fn fail(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert_eq!(scope.replies::<BuyTicket>().await?.len(), 2);
            Err(SIMULATED.into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failure_handler_in_a_rollback_gets_the_children_rolled_back() -> Result<()> {
        let notes = Notes::default();
        let run = Run::launch((Trip { notes: notes.clone() }, TicketOffice), Root).await?;
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)), "{}", run.root.tree().await?);
        let notes = notes.all();
        assert_eq!(notes[..2], ["1 given back", "2 kept"]);
        assert!(notes[2].contains("is on topic `buy-ticket`, so it is no `"), "{}", notes[2]);
        assert!(
            notes[2].contains("which is on topic `book-night`; ask `child.is::<M>()` first"),
            "{}",
            notes[2]
        );
        Ok(())
    }
}

mod many {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "offers-wanted", replies = u32)]
    struct OffersWanted;

    #[derive(Default)]
    struct Broker;

    #[saga(name = "broker")]
    #[subscribes(OffersWanted)]
    impl Broker {
        #[step(retry(max = 1, backoff = "1ms"))]
        async fn first(&self, scope: &mut Scope<'_>, wanted: &OffersWanted) -> Result<Next<BrokerStep>> {
            let iteration = scope.iteration();
            for offer in [30, 10, 20] {
                scope.reply(wanted, offer + iteration)?;
            }
            match (scope.attempt(), iteration) {
                (0, _) => Err(SIMULATED.into()),
                (_, 0..12) => Ok(Next::Repeat),
                _ => Ok(Next::Continue),
            }
        }

        #[step]
        async fn last(&self, scope: &mut Scope<'_>, wanted: &OffersWanted) -> Result<()> {
            scope.reply(wanted, 99)
        }
    }

    handler! {
        Buyer: "buyer" on Root;
        step "ask" ask => launches(OffersWanted);

        #[step]
        async fn choose(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let offers = scope.replies::<OffersWanted>().await?;
            let offers: Vec<_> = offers.iter().map(|offer| offer.value).collect();
            let mut expected: Vec<_> = (0..=12).flat_map(|nth| [30 + nth, 10 + nth, 20 + nth]).collect();
            expected.push(99);
            assert_eq!(offers, expected);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_replies_come_each_once_and_in_their_order_from_retried_and_repeated_steps() -> Result<()> {
        let run = Run::launch((Buyer, Broker), Root).await?;
        assert_eq!(run.root.ends().await?, Outcome::Committed, "{}", run.root.tree().await?);
        Ok(())
    }
}

mod second {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "price-asked", reply = u32)]
    struct AskPrice;

    struct Shop {
        notes: Notes,
    }

    #[saga(name = "shop")]
    #[subscribes(AskPrice)]
    impl Shop {
        #[step]
        async fn quote(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
            scope.reply(ask, 7)?;
            self.notes.add(scope.reply(ask, 8).expect_err("in the same step").to_string());
            Ok(())
        }

        #[step]
        async fn quote_again(&self, scope: &mut Scope<'_>, ask: &AskPrice) -> Result<()> {
            self.notes.add(scope.reply(ask, 9).expect_err("in a later step").to_string());
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn second_reply_is_refused_with_saga_step_and_remedy() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((Shop { notes: notes.clone() },)).await?;
        assert_eq!(scoop.launch(AskPrice).result().await?, 7);
        for (refusal, step) in notes.all().iter().zip(["quote", "quote_again"]) {
            assert!(
                refusal.contains(&format!("step `{step}` of saga `shop` replies to message ")),
                "{refusal}"
            );
            assert!(refusal.contains("write `#[message(replies = u32)]` on `AskPrice`"), "{refusal}");
            assert!(!refusal.contains("variable") && !refusal.contains("lineage"), "{refusal}");
        }
        assert_eq!(notes.all().len(), 2);
        Ok(())
    }
}

//! The operands of `?` in the functions of a saga, in a crate that is strict with itself.
#![deny(warnings, clippy::all, clippy::pedantic)]
#![allow(
    clippy::unused_self,
    clippy::unused_async,
    unused_variables,
    clippy::needless_pass_by_value
)]

use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Root;

#[derive(Default)]
struct Marks;

/// An error that borrows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Borrowing<'a>(&'a str);

fn borrow(text: &str) -> std::result::Result<&str, Borrowing<'_>> {
    Err(Borrowing(text))
}

macro_rules! twice {
    ($value:expr) => {
        $value + $value
    };
}

#[saga]
#[subscribes(Root)]
impl Marks {
    #[step]
    async fn step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        #![allow(clippy::items_after_statements)]
        let number: i32 = "7".parse()?;
        let numbers: Vec<i32> =
            ["1", "2"].iter().map(|it| it.parse()).collect::<std::result::Result<_, _>>()?;
        let sum = numbers.iter().map(|it| twice!(*it)).sum::<i32>() + twice!("1".parse::<i32>()?);
        let text = String::from("borrowed");
        let in_closure = |text: &str| -> std::result::Result<usize, String> {
            let text = borrow(text).map_err(|it| it.to_string())?;
            Ok(text.len())
        };
        let in_block = async {
            let text = borrow(&text)?;
            Ok::<_, Borrowing<'_>>(text.len())
        };
        drop((in_closure(&text), in_block.await));
        fn inside(
            lock: &Mutex<u8>,
        ) -> std::result::Result<u8, PoisonError<std::sync::MutexGuard<'_, u8>>> {
            Ok(*lock.lock()?)
        }
        fn first<T: ?Sized + AsRef<[u8]>>(list: &T) -> Option<u8> {
            Some(*list.as_ref().first()?)
        }
        assert!(inside(&Mutex::new(7)).is_ok() && first("abc").is_some());
        println!("{} {}", self.nested()?, scope.idempotency_key());
        let poll: Poll<i32> = Poll::Ready("7".parse::<i32>())?;
        let nested = Ok::<_, std::num::ParseIntError>("7".parse::<i32>())??;
        let borrowed: &mut [u8] = self.borrowed(&mut [1, 2])?;
        match number {
            1 | 2 => self.nested().map(drop)?,
            _ if number > 3 || self.nested()? > 2 => (),
            _ => {}
        }
        Ok(())
    }

    fn nested(&self) -> Result<usize> {
        let length = self.optional(&["x"]).ok_or_else(|| Error::msg("none"))?;
        Ok(length + self.with_an_error_that_borrows("x").unwrap_or_default())
    }

    fn optional(&self, list: &[&str]) -> Option<usize> {
        Some(list.first()?.len())
    }

    fn borrowed<'a>(&self, list: &'a mut [u8]) -> Result<&'a mut [u8]> {
        let (first, rest) = list.split_first_mut().ok_or_else(|| Error::msg("none"))?;
        Ok(rest)
    }

    fn with_an_error_that_borrows<'a>(
        &self,
        text: &'a str,
    ) -> std::result::Result<usize, Borrowing<'a>> {
        Ok(borrow(text)?.len())
    }
}

macro_rules! saga_of {
    ($name:ident, $message:ident, $value:expr, $body:block) => {
        #[derive(Message, Serialize, Deserialize)]
        struct $message;

        #[derive(Default)]
        struct $name;

        #[saga]
        #[subscribes($message)]
        impl $name {
            #[step]
            async fn value(&self, _: &mut Scope<'_>, _: &$message) -> Result<u8> {
                let value = $value?;
                Ok(value)
            }

            #[step]
            async fn body(&self, _: &mut Scope<'_>, _: &$message) -> Result<()> $body

            async fn convert<E>(&self, error: E) -> Result<()>
            where
                Error: From<E>,
            {
                Err(error)?;
                Ok(())
            }
        }
    };
}

saga_of!(Made, ByMacro, "7".parse::<u8>(), {
    Made.convert("x".parse::<u8>().unwrap_err()).await?;
    Ok(())
});

#[scoop::trace]
mod helpers {
    use scoop::{Traced, Result};

    pub(super) fn parse(text: &str) -> Result<i32> {
        Ok(text.parse()?)
    }

    pub(super) async fn total(texts: &[&str]) -> Result<i32> {
        let mut total = 0;
        for text in texts {
            total += parse(text)?;
        }
        let all = async { parse(texts[0]).traced() };
        Ok(total + all.await?)
    }
}

pub(crate) fn main() {
    drop(helpers::total(&["1"]));
    assert_eq!(Marks::DEFINITION.saga, "marks");
}

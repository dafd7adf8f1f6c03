//! A row of batch files, or one: what happens to a VM that starts after the header was written; it
//! opens files by what it is given.

use crate::batch::{BatchError, BatchWriter, Written};
use crate::rates::Rates;
use std::io::{self, Write};

/// What becomes of objects that come after the header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// They are left out, as in esxtop's own files.
    #[default]
    LeaveOut,
    /// A new file begins, in which they have columns.
    NewFile,
}

/// Writes one file after the other. `open` is given 0, 1, 2, …
pub struct BatchFiles<W, F> {
    open: F,
    late: Late,
    host: String,
    worlds: bool,
    current: Option<BatchWriter<W>>,
    opened: u32,
}

impl<W: Write, F: FnMut(u32) -> io::Result<W>> BatchFiles<W, F> {
    /// Files of the host of that name, with or without worlds.
    pub fn new(open: F, host: &str, worlds: bool, late: Late) -> Self {
        BatchFiles { open, late, host: host.to_owned(), worlds, current: None, opened: 0 }
    }

    /// Writes a sample, in a new file if it has to be.
    ///
    /// # Errors
    /// `BatchError` where a file cannot be opened or does not take it.
    pub fn write(&mut self, rates: &Rates) -> Result<Written, BatchError> {
        let full = |w: &BatchWriter<W>| self.late == Late::NewFile && w.missing(rates) > 0;
        let kept = self.current.take().filter(|w| !full(w));
        let writer = match kept {
            Some(w) => w,
            None => {
                let w = BatchWriter::new((self.open)(self.opened)?, &self.host);
                self.opened += 1;
                if self.worlds { w } else { w.without_worlds() }
            }
        };
        self.current.insert(writer).write(rates)
    }

    /// Files opened so far.
    #[must_use]
    pub fn opened(&self) -> u32 {
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::rates;
    use crate::{Gid, GroupRates};
    use std::{cell::RefCell, rc::Rc};

    /// A file in memory that several hold.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().write(data)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn run(late: Late) -> Vec<String> {
        let files = RefCell::new(vec![]);
        let open = |n: u32| {
            assert_eq!(n as usize, files.borrow().len());
            files.borrow_mut().push(Shared::default());
            Ok(files.borrow()[n as usize].clone())
        };
        let mut out = BatchFiles::new(open, "h", true, late);
        let (first, mut second) = (rates(), rates());
        let new = GroupRates { name: "late".to_owned(), ..second.groups[&Gid(12)].clone() };
        second.groups.insert(Gid(13), new);
        let left: Vec<usize> =
            [&first, &first, &second, &first].map(|r| out.write(r).unwrap().left_out).into();
        assert_eq!(left, [0, 0, usize::from(late == Late::LeaveOut), 0]);
        assert_eq!(out.opened() as usize, files.borrow().len());
        files.borrow().iter().map(|f| String::from_utf8(f.0.borrow().clone()).unwrap()).collect()
    }

    #[test]
    fn late_vms_are_left_out_or_begin_a_new_file() {
        let one = run(Late::LeaveOut);
        assert_eq!(one.iter().map(|f| f.lines().count()).collect::<Vec<_>>(), [5]);
        assert!(!one[0].contains("late") && one[0].contains("Vcpu(11:web:"));
        let two = run(Late::NewFile);
        assert_eq!(
            two.iter().map(|f| f.lines().count()).collect::<Vec<_>>(),
            [3, 3],
            "who goes needs no new file"
        );
        assert!(!two[0].contains("late") && two[1].contains("Group Cpu(13:late)"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_said() {
        let mut out = BatchFiles::new(
            |_| Err::<Vec<u8>, _>(io::Error::other("denied")),
            "h",
            true,
            Late::NewFile,
        );
        assert!(out.write(&rates()).unwrap_err().to_string().contains("denied"));
    }
}

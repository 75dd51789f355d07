//! A copy of the database, page by page.

use plait_engine::ship::Copied;
use plait_replicate::ids::{Generation, Lsn, Salt};
use plait_replicate::record::item::push_page;
use plait_replicate::source::{BaseCopy, Pages, SourceError};

struct CopiedPages {
    copied: Copied,
    next: u32,
}

impl Pages for CopiedPages {
    fn next(&mut self, bytes: usize) -> Result<Option<Vec<u8>>, SourceError> {
        let page_bytes = self.copied.page_bytes as usize;
        let mut list = Vec::new();
        let mut page = vec![0; page_bytes];
        while self.next <= self.copied.page_count && (list.is_empty() || list.len() < bytes) {
            let read = self.copied.read(self.next, &mut page);
            read.map_err(|error| SourceError::Later(error.to_string()))?;
            push_page(&mut list, self.next, &page);
            self.next += 1;
        }
        Ok((!list.is_empty()).then_some(list))
    }
}

/// A copy as the sidecar takes it.
pub fn handed_on(copied: Copied) -> BaseCopy {
    BaseCopy {
        generation: Generation(copied.generation.get()),
        salt: Salt(copied.salt),
        stream: Lsn(copied.stream.get()),
        page_bytes: copied.page_bytes,
        page_count: copied.page_count,
        pages: Box::new(CopiedPages { copied, next: 1 }),
    }
}

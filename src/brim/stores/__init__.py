"""What is kept between runs, as files; no decision is made here."""

-- Every kind of thing that a state directory holds. The directories in this folder were made with this file.
CREATE STREAM trades (id BIGINT, symbol STRING, user_id BIGINT, price DECIMAL(12, 4), qty INT, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM fills (trade_id BIGINT, venue STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM logs (n INT, line STRING);

CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING, tags ARRAY<STRING>, home STRUCT<city: STRING, zip: INT>);
INSERT INTO users VALUES
  (1, 'Alice', array('a', 'b'), named_struct('city', 'Ulm', 'zip', 89073)),
  (2, 'Bob', array(), NULL),
  (3, NULL, NULL, named_struct('city', NULL, 'zip', 1));
UPDATE users SET name = 'Robert' WHERE user_id = 2;
DELETE FROM users WHERE user_id = 3;
CREATE TABLE notes (at TIMESTAMP, d DATE, text STRING, x DOUBLE, ok BOOLEAN, raw BINARY, m MAP<STRING, INT>);
INSERT INTO notes VALUES
  (TIMESTAMP '2024-01-01 00:00:00.000001', DATE '2024-02-29', 'ä', 0.1, true, X'00FF', map('a', 1)),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE INDEX notes_by_text ON notes (text);
CREATE TABLE quotes (symbol STRING, day DATE, price DECIMAL(12, 4), PRIMARY KEY (symbol, day)) WITH ('durability' = 'batch');
INSERT INTO quotes VALUES ('ACME', DATE '2024-01-01', 10.5), ('GLOB', DATE '2024-01-01', 7.25);

CREATE TABLE last_trades (symbol STRING, price DECIMAL(12, 4), PRIMARY KEY (symbol)) AS SELECT symbol, price FROM trades;
CREATE TABLE large AS SELECT id, price * qty AS amount FROM trades WHERE qty >= 50;
CREATE TABLE totals AS SELECT symbol, COUNT(*) AS n, SUM(price * qty) AS total, AVG(price) AS average, MIN(price) AS least,
  COUNT(DISTINCT user_id) AS users, MEDIAN(qty) AS middle, COLLECT_LIST(qty) AS all_of_them, LAST(id) AS last, STDDEV(qty) AS sd
  FROM trades GROUP BY symbol HAVING COUNT(*) > 1;
CREATE TABLE overall AS SELECT COUNT(*) AS n, MAX(ts) AS newest FROM trades;
CREATE TABLE tumbling AS SELECT symbol, SUM(qty) AS total FROM trades GROUP BY symbol WINDOW TUMBLING(10s);
CREATE TABLE finals AS SELECT window_start, COUNT(*) AS n FROM trades WINDOW HOPPING(10s, 5s) EMIT FINAL;
CREATE TABLE sessions AS SELECT symbol, window_start, window_end, SUM(qty) AS total FROM trades GROUP BY symbol WINDOW SESSION(5s);
CREATE TABLE filled AS SELECT t.id, f.venue FROM trades t LEFT JOIN fills f
  ON t.id = f.trade_id AND f.ts BETWEEN t.ts AND t.ts + INTERVAL 10 SECONDS;
CREATE TABLE named (id BIGINT PRIMARY KEY, name STRING) AS SELECT t.id, u.name FROM trades t JOIN users u ON t.user_id = u.user_id
  WITH ('on.miss' = 'retry', 'on.miss.timeout' = '100000h');
CREATE TABLE ratios AS SELECT id, 100 / (qty - 13) AS ratio FROM trades;
CREATE STREAM dear AS SELECT id, symbol, price FROM trades WHERE price > 5;
CREATE TABLE counts AS SELECT symbol, COUNT(*) AS n FROM dear GROUP BY symbol;
CREATE TABLE lines (n INT PRIMARY KEY, line STRING) AS SELECT n, line FROM logs;
CREATE TABLE stock (symbol STRING PRIMARY KEY, qty BIGINT);
INSERT INTO stock VALUES ('ACME', 100000), ('GLOB', 100000);
UPDATE stock SET qty = stock.qty - t.qty FROM trades t WHERE stock.symbol = t.symbol;
CREATE MATERIALIZED VIEW by_city AS SELECT u.home.city AS city, COUNT(*) AS n FROM users u JOIN named n ON n.name = u.name GROUP BY u.home.city;
CREATE VIEW rich AS SELECT * FROM users WHERE user_id < 3;

"""Parses paths with wildcards: ``positions.*.shares``, ``portfolio.**.price``, ``a[*].b``."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.sql.nodes import AnyDepth, Index, Path
from millpond.sql.parser.names import NameParser


class PathParser(NameParser):
    def _parse_unary(self) -> exp.Expr | None:
        if self._curr.token_type == TokenType.STAR and self._next.token_type == TokenType.STAR:
            return self._parse_path()
        return super()._parse_unary()

    def _parse_column(self) -> exp.Expr | None:
        if self._next.token_type in (TokenType.DOT, TokenType.L_BRACKET) and self._wildcard_ahead():
            return self._parse_path()
        return super()._parse_column()

    def _wildcard_ahead(self) -> bool:
        """Returns whether the dotted chain that begins here has a wildcard other than the last of ``a.*`` or
        ``a.b.*``.
        """
        if not self._curr or self._curr.token_type not in (self.ID_VAR_TOKENS | {TokenType.IDENTIFIER}):
            return False
        ahead, indexed = 1, False
        while token := self.peek(ahead):
            if token.token_type == TokenType.L_BRACKET:
                star = self.peek(ahead + 1)
                if star and star.token_type == TokenType.STAR:
                    return True
                depth = 0
                while inner := self.peek(ahead):
                    depth += (inner.token_type == TokenType.L_BRACKET) - (
                        inner.token_type == TokenType.R_BRACKET
                    )
                    ahead += 1
                    if depth == 0:
                        break
                indexed = True
            elif token.token_type == TokenType.DOT:
                after, then = self.peek(ahead + 1), self.peek(ahead + 2)
                if after and after.token_type == TokenType.STAR:
                    if indexed or then is None:
                        return indexed
                    deep = then.token_type == TokenType.STAR and then.start == after.end + 1
                    return deep or then.token_type in (TokenType.DOT, TokenType.L_BRACKET, TokenType.ALIAS)
                ahead += 2
            else:
                return False
        return False

    def _parse_path(self) -> Path:
        first = self._curr
        steps = [self._parse_step()]
        while True:
            if self.at_token(TokenType.L_BRACKET):
                self._advance()
                star = self.match_token(TokenType.STAR)
                steps.append(Index(this=exp.Star() if star else self.expect_expression("an index or *")))
                if not self.match_token(TokenType.R_BRACKET):
                    self.fail_expected('"]"')
            elif self.match_token(TokenType.DOT):
                steps.append(self._parse_step())
            else:
                break
        path = Path(expressions=steps)
        return path.update_positions(start=first.start, end=self._prev.end, line=first.line, col=first.col)

    def _parse_step(self) -> exp.Expression:
        if self.match_token(TokenType.STAR):
            return AnyDepth() if self.match_token(TokenType.STAR) else exp.Star()
        step = self._parse_id_var(any_token=True)
        if not isinstance(step, exp.Identifier):
            self.fail_expected("a field, * or **")
        return step
